{{- /* The name of a router and, with `-groups` behind it, of its groups: a list of the root and the router's number. */}}
{{- define "penstock.router" -}}
{{- printf "%s-%d" (include "penstock.fullname" (index . 0)) (index . 1) }}
{{- end }}

{{- /* What the pods of a router's groups have in common, and what no other pod has. */}}
{{- define "penstock.groupSelector" -}}
{{ include "penstock.allGroups" (index . 0) }}
penstock/router: {{ include "penstock.router" . }}
{{- end }}

{{- define "penstock.allGroups" -}}
app.kubernetes.io/name: {{ include "penstock.name" . }}-groups
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.groupLabels" -}}
{{ include "penstock.groupSelector" . }}
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
helm.sh/chart: {{ printf "%s-%s" (index . 0).Chart.Name (index . 0).Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The names of the settings that groups obey (`group`), or that concern shards alone (`shards`), as a JSON list. */}}
{{- define "penstock.settingsOf" -}}
{{- index ((index . 0).Files.Get "settings.json" | fromJson) (index . 1) | toJson }}
{{- end }}

{{- /* The shards of a group. */}}
{{- define "penstock.numShard" -}}
{{- with .Values.groups }}
{{- .numShard | default (mul (max 1 (int $.Values.gpu.count)) (int .nodes)) | int }}
{{- end }}
{{- end }}

{{- /* The last port of a pod's shards. */}}
{{- define "penstock.lastPort" -}}
{{- with .Values.groups }}
{{- sub (add .port (div (include "penstock.numShard" $ | int) (int .nodes))) 1 }}
{{- end }}
{{- end }}

{{- define "penstock.wireSecret" -}}
{{- default (printf "%s-shard-tls" (include "penstock.fullname" .)) .Values.groups.tls.existingSecret }}
{{- end }}

{{- /* How routers and shards prove to one another who they are. */}}
{{- define "penstock.wireVariables" }}
- {name: SHARD_TLS_CA, value: /etc/penstock/shard-tls/ca.crt}
- {name: SHARD_TLS_CERT, value: /etc/penstock/shard-tls/tls.crt}
- {name: SHARD_TLS_KEY, value: /etc/penstock/shard-tls/tls.key}
{{- end }}

{{- define "penstock.wireVolume" }}
- name: shard-tls
  secret:
    secretName: {{ include "penstock.wireSecret" . }}
    defaultMode: 0440
{{- end }}

{{- /* The variables of a group's container: a list of the root, the router's number, and "leader" or "worker". */}}
{{- define "penstock.groupVariables" -}}
{{- $ := index . 0 }}
{{- $host := $.Values.server.hostname }}
{{- if eq (int $.Values.groups.nodes) 1 }}
- name: GROUP_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
{{- else }}
- name: GROUP_INDEX
  valueFrom:
    fieldRef: {fieldPath: "metadata.labels['leaderworkerset.sigs.k8s.io/group-index']"}
- {name: GROUP_NAME, value: {{ include "penstock.router" . }}-groups-$(GROUP_INDEX)}
- {name: NNODES, value: {{ include "penstock.text" $.Values.groups.nodes | quote }}}
- {name: NODE_RANK, value: $(LWS_WORKER_INDEX)}
{{- if eq (last .) "leader" }}
- name: MASTER_ADDR  # where it listens: its own name may not be known yet
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
{{- else }}
- {name: MASTER_ADDR, value: $(LWS_LEADER_ADDRESS)}
{{- end }}
- {name: MASTER_PORT, value: {{ include "penstock.text" $.Values.groups.masterPort | quote }}}
{{- if $.Values.groups.allowClearExchange }}
- {name: ALLOW_CLEAR_EXCHANGE, value: "true"}
{{- end }}
{{- end }}
- {name: LISTEN, value: {{ printf (ternary "[%s]:%s" "%s:%s" (contains ":" $host)) $host (include "penstock.text" $.Values.groups.port) | quote }}}
- {name: NUM_SHARD, value: {{ include "penstock.numShard" $ | quote }}}
{{- if and $.Values.gpu.count (not (hasKey $.Values.settings "DEVICE")) }}
- {name: DEVICE, value: cuda}
{{- end }}
{{- include "penstock.modelVariables" $ }}
- {name: GRACEFUL_TERMINATION_TIMEOUT, value: {{ include "penstock.text" $.Values.groups.shutdown.drainSeconds | quote }}}
{{- $obeyed := include "penstock.settingsOf" (list $ "group") | fromJsonArray }}
{{- range $name, $value := $.Values.settings }}
{{- if and (ne $value nil) (has $name $obeyed) }}
- {name: {{ $name }}, value: {{ include "penstock.text" $value | quote }}}
{{- end }}
{{- end }}
{{- include "penstock.otherVariables" $ }}
{{- include "penstock.wireVariables" $ }}
{{- end }}

{{- /* No liveness probe: the launcher itself starts shards again that end or hang. */}}
{{- define "penstock.groupContainer" -}}
{{- $ := index . 0 }}
{{- $gpus := int $.Values.gpu.count }}
name: group
image: {{ include "penstock.image" (list $ $gpus) | quote }}
imagePullPolicy: {{ $.Values.image.pullPolicy }}
command: [tini, --, penstock, group]
{{- with $.Values.groups.args }}
args: {{- toYaml . | nindent 2 }}
{{- end }}
env:
  {{- include "penstock.groupVariables" . | trim | nindent 2 }}
  {{- with $.Values.groups.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - {name: shards, containerPort: {{ include "penstock.text" $.Values.groups.port }}}
readinessProbe:
  tcpSocket: {port: shards}  # where nobody listens until the model is loaded
  periodSeconds: 5
resources: {{- include "penstock.resources" (list $ $.Values.groups.resources $gpus) | nindent 2 }}
{{- include "penstock.confinement" . }}
volumeMounts:
  - {name: data, mountPath: /data}
  - {name: tmp, mountPath: /tmp}
  - {name: shard-tls, mountPath: /etc/penstock/shard-tls, readOnly: true}
  {{- with $.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "penstock.groupPod" -}}
{{- $ := index . 0 -}}
metadata:
  labels:
    {{- include "penstock.groupLabels" . | nindent 4 }}
    {{- with $.Values.groups.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $.Values.groups.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "penstock.serviceAccount" $ }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "penstock.text" $.Values.groups.shutdown.graceSeconds }}
  securityContext: {{- toYaml $.Values.podSecurityContext | nindent 4 }}
  {{- with $.Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $.Values.gpu.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with include "penstock.placement" $.Values.groups | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - {{ include "penstock.groupContainer" . | nindent 6 | trim }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $.Values.tmpSize }}}
    {{- if include "penstock.sharedClaim" $ }}
    - name: data
      persistentVolumeClaim: {claimName: {{ include "penstock.sharedClaim" $ }}}
    {{- else if not (include "penstock.hasOwnClaims" $) }}
    - name: data
      emptyDir: {}
    {{- end }}
    {{- include "penstock.wireVolume" $ | trim | nindent 4 }}
    {{- with $.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
