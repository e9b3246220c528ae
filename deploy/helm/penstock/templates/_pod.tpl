{{- define "penstock.pod" -}}
metadata:
  labels:
    {{- include "penstock.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations (include "penstock.ownSecret" .) }}
  annotations:
    {{- if include "penstock.ownSecret" . }}
    checksum/secret: {{ include (print $.Template.BasePath "/secret.yaml") . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "penstock.serviceAccount" . }}
  automountServiceAccountToken: false
  # With the links a service called `grpc` or `master` would set GRPC_PORT or MASTER_PORT.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "penstock.text" .Values.shutdown.graceSeconds }}
  securityContext: {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if and .Values.gpu.runtimeClassName (not .Values.groups.enabled) }}
  runtimeClassName: {{ .Values.gpu.runtimeClassName }}
  {{- end }}
  {{- with include "penstock.placement" .Values | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - {{ include "penstock.container" . | nindent 6 | trim }}
  volumes:
    {{- include "penstock.volumes" . | trim | nindent 4 }}
{{- end }}

{{- /* Where a pod may run, by the values that say so. */}}
{{- define "penstock.placement" }}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with get $ $field }}
{{ $field }}: {{- if kindIs "string" . }} {{ . }}{{ else }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.volumes" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ .Values.tmpSize }}}
{{- if include "penstock.sharedClaim" . }}
- name: data
  persistentVolumeClaim: {claimName: {{ include "penstock.sharedClaim" . }}}
{{- else if or .Values.groups.enabled (not .Values.persistence.enabled) }}
- name: data
  emptyDir: {}
{{- end }}
{{- if .Values.groups.enabled }}
{{- include "penstock.wireVolume" . }}
{{- end }}
{{- if or .Values.auth.apiKeys .Values.auth.existingSecret }}
- name: keys
  secret:
    secretName: {{ default (include "penstock.ownSecret" .) .Values.auth.existingSecret }}
    defaultMode: 0440
    items:
      - {key: {{ ternary .Values.auth.apiKeysKey "api-keys" (ne .Values.auth.existingSecret "") }}, path: api-keys}
{{- end }}
{{- if .Values.tls.existingSecret }}
- name: tls
  secret:
    secretName: {{ .Values.tls.existingSecret }}
    defaultMode: 0440
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
