{{- define "penstock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "penstock.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "penstock.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "penstock.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "penstock.selector" -}}
app.kubernetes.io/name: {{ include "penstock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "penstock.labels" -}}
{{ include "penstock.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The image of containers with so many GPUs: a list of the root and their number. */}}
{{- define "penstock.image" -}}
{{- $gpus := index . 1 | int }}
{{- with index . 0 }}
{{- $tag := default (printf "%s%s" .Chart.AppVersion (ternary "-cuda" "" (gt $gpus 0))) .Values.image.tag }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository $tag }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A replica that has groups for itself must not run twice, which only a StatefulSet sees to. */}}
{{- define "penstock.kind" -}}
{{- ternary "StatefulSet" .Values.kind .Values.groups.enabled }}
{{- end }}

{{- /* The GPUs of a replica: one with groups is a router, which needs none. */}}
{{- define "penstock.serverGpus" -}}
{{- ternary 0 (int .Values.gpu.count) .Values.groups.enabled }}
{{- end }}

{{- define "penstock.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "penstock.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "penstock.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.tls.existingSecret "") }}
{{- end }}

{{- /* A value as a variable's text. Helm reads every number as a float, which would be written 2e+06. */}}
{{- define "penstock.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* The secret with the token and keys that the values hold; empty if they hold none. */}}
{{- define "penstock.ownSecret" -}}
{{- if or .Values.hub.token .Values.auth.apiKeys .Values.auth.metricsKey }}
{{- include "penstock.fullname" . }}
{{- end }}
{{- end }}

{{- /* The secret and its entry, as in `secretKeyRef`, that clients of /metrics need; empty if they need none. */}}
{{- define "penstock.metricsKey" -}}
{{- if .Values.auth.metricsKey }}
name: {{ include "penstock.fullname" . }}
key: metrics-key
{{- else if .Values.auth.metricsKeyKey }}
name: {{ .Values.auth.existingSecret }}
key: {{ .Values.auth.metricsKeyKey }}
{{- end }}
{{- end }}

{{- /* The claim that all replicas share; empty if each has its own volume. */}}
{{- define "penstock.sharedClaim" -}}
{{- with .Values.persistence }}
{{- if and .enabled (or .existingClaim (eq (include "penstock.kind" $) "Deployment")) }}
{{- default (include "penstock.fullname" $) .existingClaim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Whether one node alone can mount the claim. */}}
{{- define "penstock.claimIsOnOneNode" -}}
{{- $modes := .Values.persistence.accessModes }}
{{- if and (include "penstock.sharedClaim" .) (not (has "ReadWriteMany" $modes)) }}true{{ end }}
{{- end }}

{{- /* Whether each replica, or each group, has a claim of its own. */}}
{{- define "penstock.hasOwnClaims" -}}
{{- if and .Values.persistence.enabled (not .Values.persistence.existingClaim) }}true{{ end }}
{{- end }}
