{{- /* Refuses values that contradict one another, which a schema can't tell. */}}
{{- define "penstock.checks" -}}
{{- include "penstock.checkShutdown" . }}
{{- include "penstock.checkReplicas" . }}
{{- include "penstock.checkSecrets" . }}
{{- include "penstock.checkGpus" . }}
{{- include "penstock.checkServer" . }}
{{- if .Values.groups.enabled }}
{{- include "penstock.checkGroups" . }}
{{- include "penstock.checkWire" . }}
{{- end }}
{{- end }}

{{- define "penstock.checkShutdown" -}}
{{- with .Values.shutdown }}
{{- $needed := add .preStopSeconds .drainSeconds 10 }}
{{- if lt (int .graceSeconds) (int $needed) }}
{{- fail (printf "shutdown.graceSeconds must be at least %d, which is preStopSeconds + drainSeconds + 10, not %d: running requests would be cut off" (int $needed) (int .graceSeconds)) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.checkReplicas" -}}
{{- $scaled := ne .Values.autoscaling.kind "none" }}
{{- $replicas := ternary .Values.autoscaling.maxReplicas .Values.replicaCount $scaled | int }}
{{- $field := ternary "autoscaling.maxReplicas" "replicaCount" $scaled }}
{{- if and (include "penstock.claimIsOnOneNode" .) .Values.groups.enabled }}
{{- fail (printf "persistence.existingClaim is %q, which routers and groups share, but persistence.accessModes have no ReadWriteMany" .Values.persistence.existingClaim) }}
{{- else if and (include "penstock.claimIsOnOneNode" .) (gt $replicas 1) }}
{{- fail (printf "%s is %d, but replicas share the claim %s, whose persistence.accessModes have no ReadWriteMany: choose kind StatefulSet without persistence.existingClaim, or a claim with ReadWriteMany" $field $replicas (include "penstock.sharedClaim" .)) }}
{{- end }}
{{- if .Values.settings.DATA_DIR }}
{{- if gt $replicas 1 }}
{{- fail (printf "settings.DATA_DIR is given, but %s is %d: each replica would have other files and batches than the next, or they would share SQLite's file over a network, where it breaks. Give all a PostgreSQL as PENSTOCK_DATABASE_URL, in env" $field $replicas) }}
{{- else if and (include "penstock.sharedClaim" .) (not (include "penstock.claimIsOnOneNode" .)) }}
{{- fail "settings.DATA_DIR is given, but persistence.accessModes have ReadWriteMany: SQLite's file breaks where an old replica and a new one share it over a network. Leave ReadWriteMany out, or give a PostgreSQL as PENSTOCK_DATABASE_URL, in env" }}
{{- else if and (hasPrefix "/data" .Values.settings.DATA_DIR) (not (include "penstock.sharedClaim" .)) (or .Values.groups.enabled (not .Values.persistence.enabled)) }}
{{- fail (printf "settings.DATA_DIR is given, but %s: /data ends with the router's pod, and files and batches with it. Give a PostgreSQL as PENSTOCK_DATABASE_URL, in env" (ternary "persistence.enabled is false" "groups.enabled is true, and the router has no claim" (not .Values.persistence.enabled))) }}
{{- end }}
{{- end }}
{{- if and .Values.persistence.existingClaim (not .Values.persistence.enabled) }}
{{- fail (printf "persistence.existingClaim is %q, but persistence.enabled is false: the claim would not be used" .Values.persistence.existingClaim) }}
{{- end }}
{{- if $scaled }}
{{- if gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas must be at most autoscaling.maxReplicas, %d, not %d" (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) }}
{{- end }}
{{- end }}
{{- if and (eq .Values.autoscaling.kind "keda") (not .Values.autoscaling.keda.serverAddress) }}
{{- fail "autoscaling.keda.serverAddress is missing: KEDA asks the Prometheus at that address for tgi_queue_size" }}
{{- end }}
{{- end }}

{{- define "penstock.checkSecrets" -}}
{{- with .Values }}
{{- if and .hub.token .hub.existingSecret }}
{{- fail "hub.token and hub.existingSecret are both given: leave one out" }}
{{- end }}
{{- if and .auth.existingSecret (or .auth.apiKeys .auth.metricsKey) }}
{{- fail "auth.existingSecret is given beside auth.apiKeys or auth.metricsKey: put all keys in the secret, or none" }}
{{- end }}
{{- if and .auth.metricsKeyKey (not .auth.existingSecret) }}
{{- fail "auth.metricsKeyKey names an entry of auth.existingSecret, which is missing" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.checkGpus" -}}
{{- $gpus := int .Values.gpu.count }}
{{- $shards := int (default 0 .Values.settings.NUM_SHARD) }}
{{- if and $gpus $shards (ne $gpus $shards) (not .Values.groups.enabled) }}
{{- fail (printf "settings.NUM_SHARD is %d, but gpu.count is %d, and each GPU runs one shard: leave NUM_SHARD out" $shards $gpus) }}
{{- end }}
{{- if and $gpus (eq (default "" .Values.settings.DEVICE) "cpu") }}
{{- fail (printf "settings.DEVICE is cpu, but gpu.count is %d: the GPUs would be reserved and not used" $gpus) }}
{{- end }}
{{- range $part := list "limits" "requests" }}
{{- range $prefix, $resources := dict "" $.Values.resources "groups." $.Values.groups.resources }}
{{- if hasKey (default dict (get $resources $part)) $.Values.gpu.resource }}
{{- fail (printf "%sresources.%s has %s: give the number of GPUs as gpu.count" $prefix $part $.Values.gpu.resource) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.checkServer" -}}
{{- if eq (int .Values.server.port) (int .Values.server.grpcPort) }}
{{- fail (printf "server.grpcPort must differ from server.port, %d" (int .Values.server.port)) }}
{{- end }}
{{- if and .Values.server.grpcPort (eq (int .Values.service.port) (int .Values.service.grpcPort)) }}
{{- fail (printf "service.grpcPort must differ from service.port, %d" (int .Values.service.port)) }}
{{- end }}
{{- $own := dict }}
{{- range include "penstock.variables" . | fromYamlArray }}{{ $_ := set $own .name true }}{{ end }}
{{- range .Values.env }}
{{- if hasKey $own .name }}
{{- fail (printf "env has %s, which the chart sets from its other values: give it there" .name) }}
{{- end }}
{{- $_ := set $own .name true }}
{{- end }}
{{- end }}
