{{- define "penstock.checkGroups" -}}
{{- $shards := include "penstock.numShard" . | int }}
{{- $gpus := int .Values.gpu.count }}
{{- with .Values.groups }}
{{- $nodes := int .nodes }}
{{- if and (gt $nodes 1) (not .leaderWorkerSet) }}
{{- fail (printf "groups.nodes is %d: groups on several nodes are kept together by a LeaderWorkerSet, so install its controller and set groups.leaderWorkerSet" $nodes) }}
{{- end }}
{{- if and (eq $nodes 1) .leaderWorkerSet }}
{{- fail "groups.leaderWorkerSet is true, but groups.nodes is 1: a group on one node is a pod of a StatefulSet" }}
{{- end }}
{{- if mod $shards $nodes }}
{{- fail (printf "groups.numShard is %d, but must be a multiple of groups.nodes, %d" $shards $nodes) }}
{{- end }}
{{- if and $gpus (ne $shards (mul $gpus $nodes | int)) }}
{{- fail (printf "groups.numShard is %d, but each of %d nodes has gpu.count %d, and each GPU runs one shard: leave groups.numShard out" $shards $nodes $gpus) }}
{{- end }}
{{- range list "NUM_SHARD" "SHARDED" "PENSTOCK_GROUPS" "SHARD_TLS_CA" "SHARD_TLS_CERT" "SHARD_TLS_KEY" "MASTER_ADDR" "MASTER_PORT" }}
{{- if hasKey $.Values.settings . }}
{{- fail (printf "settings.%s is given, which follows from the values of groups: leave it out" .) }}
{{- end }}
{{- end }}
{{- if gt (include "penstock.lastPort" $ | int) 65535 }}
{{- fail (printf "groups.port is %d, but the shards need ports up to %s, and the last one is 65535" (int .port) (include "penstock.lastPort" $)) }}
{{- end }}
{{- $behind := add .masterPort $shards | int }}
{{- if and (gt $nodes 1) (le (int .masterPort) (include "penstock.lastPort" $ | int)) (ge $behind (int .port)) }}
{{- fail (printf "groups.masterPort is %d, and the shards exchange at the ports up to %d: among them are those at which they listen, %d to %s" (int .masterPort) $behind (int .port) (include "penstock.lastPort" $)) }}
{{- end }}
{{- if and (gt $nodes 1) $gpus (not .allowClearExchange) }}
{{- fail "groups.nodes is above 1 and gpu.count above 0: GPUs of several nodes exchange by NCCL, which encrypts nothing. Set groups.allowClearExchange if nobody else is on the network" }}
{{- end }}
{{- if and (gt $nodes 1) (include "penstock.hasOwnClaims" $) }}
{{- fail (printf "groups.nodes is %d: give persistence.existingClaim with ReadWriteMany, or set persistence.enabled to false" $nodes) }}
{{- end }}
{{- $needed := add .shutdown.drainSeconds 15 | int }}
{{- if lt (int .shutdown.graceSeconds) $needed }}
{{- fail (printf "groups.shutdown.graceSeconds must be at least %d, which is drainSeconds + 15, not %d: running requests would be cut off" $needed (int .shutdown.graceSeconds)) }}
{{- end }}
{{- end }}
{{- $own := dict }}
{{- range include "penstock.groupVariables" (list . 0 "leader") | fromYamlArray }}{{ $_ := set $own .name true }}{{ end }}
{{- range .Values.groups.env }}
{{- if hasKey $own .name }}
{{- fail (printf "groups.env has %s, which the chart sets from its other values: give it there" .name) }}
{{- end }}
{{- $_ := set $own .name true }}
{{- end }}
{{- if gt (len (include "penstock.fullname" .)) 42 }}
{{- fail (printf "the name %s is longer than 42 characters, which leaves no room for those of groups: set fullnameOverride" (include "penstock.fullname" .)) }}
{{- end }}
{{- if and .Values.autoscaling.keda.query (gt (int .Values.replicaCount) 1) }}
{{- fail (printf "autoscaling.keda.query is one query, but replicaCount is %d, and the groups of each router are scaled for themselves" (int .Values.replicaCount)) }}
{{- end }}
{{- range $name := list "LORA_ADAPTERS" "ALLOW_RUNTIME_ADAPTERS" }}
{{- if and (get $.Values.settings $name) (not (hasKey $.Values.settings "MAX_ADAPTER_MEMORY")) }}
{{- fail (printf "settings.%s needs settings.MAX_ADAPTER_MEMORY, by which groups leave room for adapters" $name) }}
{{- end }}
{{- if and (get $.Values.settings $name) (not (include "penstock.sharedClaim" $)) (not $.Values.extraVolumes) }}
{{- fail (printf "settings.%s needs a volume in which routers and groups both find the adapters: persistence.existingClaim or extraVolumes" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "penstock.checkWire" -}}
{{- with .Values.groups.tls }}
{{- if and .existingSecret .certManager.enabled }}
{{- fail "groups.tls.existingSecret and groups.tls.certManager.enabled are both given: leave one out" }}
{{- end }}
{{- if not (or .existingSecret .certManager.enabled) }}
{{- fail "groups.tls.existingSecret is missing: shards listen to other pods by mutual TLS alone. Give a secret with ca.crt, tls.crt and tls.key, or set groups.tls.certManager.enabled" }}
{{- end }}
{{- end }}
{{- end }}
