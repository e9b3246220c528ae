{{- /* The variables that the chart sets, as a container's `env`. */}}
{{- define "penstock.variables" -}}
{{- $gpus := include "penstock.serverGpus" . | int }}
{{- if .Values.groups.enabled }}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- end }}
- {name: HOSTNAME, value: {{ .Values.server.hostname | quote }}}
- {name: PORT, value: {{ include "penstock.text" .Values.server.port | quote }}}
{{- if .Values.server.grpcPort }}
- {name: GRPC_PORT, value: {{ include "penstock.text" .Values.server.grpcPort | quote }}}
{{- end }}
{{- include "penstock.modelVariables" . }}
- {name: GRACEFUL_TERMINATION_TIMEOUT, value: {{ include "penstock.text" .Values.shutdown.drainSeconds | quote }}}
{{- if $gpus }}
{{- if not (hasKey .Values.settings "NUM_SHARD") }}
- {name: NUM_SHARD, value: {{ $gpus | quote }}}
{{- end }}
{{- if not (hasKey .Values.settings "DEVICE") }}
- {name: DEVICE, value: cuda}
{{- end }}
{{- end }}
{{- $ofShards := ternary (include "penstock.settingsOf" (list . "shards") | fromJsonArray) list .Values.groups.enabled }}
{{- range $name, $value := .Values.settings }}
{{- if and (ne $value nil) (not (has $name $ofShards)) }}
- {name: {{ $name }}, value: {{ include "penstock.text" $value | quote }}}
{{- end }}
{{- end }}
{{- include "penstock.otherVariables" . }}
{{- if .Values.groups.enabled }}
{{- include "penstock.wireVariables" . }}
{{- end }}
{{- if .Values.tls.existingSecret }}
- {name: SSL_CERTFILE, value: /etc/penstock/tls/tls.crt}
- {name: SSL_KEYFILE, value: /etc/penstock/tls/tls.key}
{{- end }}
{{- if or .Values.auth.apiKeys .Values.auth.existingSecret }}
- {name: API_KEY_FILE, value: /etc/penstock/keys/api-keys}
{{- end }}
{{- with include "penstock.metricsKey" . }}
- name: METRICS_KEY
  valueFrom:
    secretKeyRef:
      {{- . | nindent 6 }}
{{- end }}
{{- end }}

{{- /* Those that name the model and its folders. */}}
{{- define "penstock.modelVariables" }}
- {name: HF_HOME, value: /data}
- {name: HOME, value: /tmp}
- {name: XDG_CACHE_HOME, value: /data/.cache}
{{- with .Values.model.id }}
- {name: MODEL_ID, value: {{ . | quote }}}
{{- end }}
{{- with .Values.model.revision }}
- {name: REVISION, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{- /* Those for the Hub and for traces. */}}
{{- define "penstock.otherVariables" }}
{{- with .Values.telemetry.otlpEndpoint }}
- {name: OTLP_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.telemetry.otlpServiceName }}
- {name: OTLP_SERVICE_NAME, value: {{ . | quote }}}
{{- end }}
{{- if or .Values.hub.token .Values.hub.existingSecret }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ default (include "penstock.ownSecret" .) .Values.hub.existingSecret }}
      key: {{ ternary .Values.hub.secretKey "hf-token" (ne .Values.hub.existingSecret "") }}
{{- end }}
{{- end }}

{{- /* A container's resources with so many GPUs: a list of the root, the resources and their number. */}}
{{- define "penstock.resources" -}}
{{- $resources := index . 1 | deepCopy }}
{{- with index . 2 | int }}
{{- $gpus := dict (index $ 0).Values.gpu.resource . }}
{{- $_ := set $resources "limits" (merge $gpus (default dict $resources.limits)) }}
{{- end }}
{{- toYaml $resources }}
{{- end }}

{{- /* The launcher restarts a hanging shard or router itself, after STEP_TIMEOUT; the liveness probe waits longer. */}}
{{- define "penstock.probes" -}}
{{- $patience := mul 2 (int (default 60 .Values.settings.STEP_TIMEOUT)) }}
startupProbe:
  httpGet: {path: /livez, port: http, scheme: {{ include "penstock.scheme" . }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: {{ div (add .Values.probes.startupSeconds 4) 5 }}
livenessProbe:
  httpGet: {path: /livez, port: http, scheme: {{ include "penstock.scheme" . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: {{ max 6 (div $patience 10) }}
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ include "penstock.scheme" . }}}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}

{{- define "penstock.container" -}}
name: penstock
image: {{ include "penstock.image" (list . (include "penstock.serverGpus" .)) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- if or .Values.groups.enabled .Values.args }}
args:
  {{- if .Values.groups.enabled }}
  - --groups=dns:$(POD_NAME)-groups:{{ include "penstock.text" .Values.groups.port }}
  {{- end }}
  {{- with .Values.args }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
env:
  {{- include "penstock.variables" . | trim | nindent 2 }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: http, containerPort: {{ include "penstock.text" .Values.server.port }}}
  {{- if .Values.server.grpcPort }}
  - {name: grpc, containerPort: {{ include "penstock.text" .Values.server.grpcPort }}}
  {{- end }}
{{- include "penstock.probes" . }}
{{- if .Values.shutdown.preStopSeconds }}
lifecycle:
  preStop:
    exec:
      command: [sleep, {{ include "penstock.text" .Values.shutdown.preStopSeconds | quote }}]
{{- end }}
resources: {{- include "penstock.resources" (list . .Values.resources (include "penstock.serverGpus" .)) | nindent 2 }}
{{- include "penstock.confinement" . }}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  {{- if or .Values.auth.apiKeys .Values.auth.existingSecret }}
  - {name: keys, mountPath: /etc/penstock/keys, readOnly: true}
  {{- end }}
  {{- if .Values.tls.existingSecret }}
  - {name: tls, mountPath: /etc/penstock/tls, readOnly: true}
  {{- end }}
  {{- if .Values.groups.enabled }}
  - {name: shard-tls, mountPath: /etc/penstock/shard-tls, readOnly: true}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "penstock.confinement" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}
