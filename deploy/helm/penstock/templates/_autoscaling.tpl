{{- define "penstock.behavior" -}}
{{- with .Values.autoscaling }}
scaleUp:
  stabilizationWindowSeconds: {{ include "penstock.text" .scaleUpSeconds }}
scaleDown:
  stabilizationWindowSeconds: {{ include "penstock.text" .scaleDownSeconds }}
  policies:  # one after another, so that each is drained while the others take its requests
    - {type: Pods, value: 1, periodSeconds: 120}
{{- end }}
{{- end }}

{{- /* Scales `target`, by the series of the pod `pod` if one is given, and else of each pod of its own. */}}
{{- define "penstock.hpa" -}}
{{- $pod := .pod }}
{{- $measure := ternary (dict "type" "Object" "field" "object") (dict "type" "Pods" "field" "pods") (ne $pod "") }}
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ .target.name }}
  labels: {{- include "penstock.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: {{- toYaml .target | nindent 4 }}
  {{- with .root.Values.autoscaling }}
  minReplicas: {{ include "penstock.text" .minReplicas }}
  maxReplicas: {{ include "penstock.text" .maxReplicas }}
  metrics:
    - type: {{ $measure.type }}
      {{ $measure.field }}:
        {{- if $pod }}
        describedObject: {apiVersion: v1, kind: Pod, name: {{ $pod }}}
        {{- end }}
        metric: {name: tgi_queue_size}
        target: {type: AverageValue, averageValue: {{ include "penstock.text" .queueSize | quote }}}
    {{- if .kvUsage }}
    - type: {{ $measure.type }}
      {{ $measure.field }}:
        {{- if $pod }}
        describedObject: {apiVersion: v1, kind: Pod, name: {{ $pod }}}
        metric: {name: penstock_kv_usage}
        target: {type: Value, value: {{ include "penstock.text" .kvUsage | quote }}}
        {{- else }}
        metric: {name: penstock_kv_usage}
        target: {type: AverageValue, averageValue: {{ include "penstock.text" .kvUsage | quote }}}
        {{- end }}
    {{- end }}
  {{- end }}
  behavior: {{- include "penstock.behavior" .root | trim | nindent 4 }}
{{- end }}

{{- /* Scales `target` by the series that have the labels `labels`. */}}
{{- define "penstock.scaledObject" -}}
{{- $labels := .labels }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ .target.name }}
  labels: {{- include "penstock.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: {{- toYaml .target | nindent 4 }}
  {{- with .root.Values.autoscaling }}
  minReplicaCount: {{ include "penstock.text" .minReplicas }}
  maxReplicaCount: {{ include "penstock.text" .maxReplicas }}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {{- include "penstock.behavior" $.root | trim | nindent 8 }}
  triggers:
    - type: prometheus
      metricType: AverageValue
      metadata:
        serverAddress: {{ .keda.serverAddress | quote }}
        query: {{ default (printf "sum(tgi_queue_size{%s})" $labels) .keda.query | squote }}
        threshold: {{ include "penstock.text" .queueSize | quote }}
    {{- if and .kvUsage (not .keda.query) }}
    - type: prometheus
      metricType: Value
      metadata:
        serverAddress: {{ .keda.serverAddress | quote }}
        query: {{ printf "avg(penstock_kv_usage{%s})" $labels | squote }}
        threshold: {{ include "penstock.text" .kvUsage | quote }}
    {{- end }}
  {{- end }}
{{- end }}
