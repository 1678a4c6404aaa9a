{{/* The namespace of Keyferry's state, and of the Secrets that TargetClusters name. */}}
{{- define "keyferry.stateNamespace" -}}
{{- .Values.clusterResourceNamespace | default .Release.Namespace -}}
{{- end }}

{{- define "keyferry.canary" -}}
{{- .Values.config.canaryServiceAccount | default "keyferry-canary" -}}
{{- end }}

{{- define "keyferry.labels" -}}
app.kubernetes.io/name: keyferry
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* A hub has one Keyferry, so the name alone selects its Pods. */}}
{{- define "keyferry.selector" -}}
app.kubernetes.io/name: keyferry
{{- end }}

{{- define "keyferry.subject" -}}
- kind: ServiceAccount
  name: keyferry
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- define "keyferry.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* The ServerConfiguration. Null values are omitted, so that Keyferry's own defaults apply. */}}
{{- define "keyferry.configuration" -}}
{{- $config := .Values.config -}}
{{- $tls := dict "certFile" "/etc/keyferry/discovery-tls/tls.crt" "keyFile" "/etc/keyferry/discovery-tls/tls.key" -}}
{{- if eq .Values.tls.source "Secrets" }}{{ $tls = dict "secretName" .Values.tls.discovery.secretName }}{{ end -}}
{{- if eq .Values.tls.discovery.minVersion "1.2" }}{{ $_ := set $tls "minVersion" "1.2" }}{{ end -}}
{{- $discovery := dict "address" "0.0.0.0:8443" "tls" $tls -}}
{{- with $config.discovery.maxAge }}{{ $_ := set $discovery "maxAge" . }}{{ end -}}
{{- $apiTls := dict "certFile" "/etc/keyferry/api-tls/tls.crt" "keyFile" "/etc/keyferry/api-tls/tls.key" -}}
{{- if eq .Values.tls.source "Secrets" }}{{ $apiTls = dict "secretName" .Values.tls.api.secretName }}{{ end -}}
{{- $api := dict "address" "0.0.0.0:9443" "tls" $apiTls -}}
{{- with $config.api.clientCertificates }}{{ $_ := set $api "clientCertificates" . }}{{ end -}}
{{- range $listener, $into := dict "discovery" $discovery "api" $api -}}
{{- $limits := dict -}}
{{- range $field, $value := get (get $config $listener | default dict) "limits" | default dict -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $limits $field (int $value) }}{{ end -}}
{{- end -}}
{{- if $limits }}{{ $_ := set $into "limits" $limits }}{{ end -}}
{{- end -}}
{{- if .Values.service.discovery.httpRedirect }}{{ $_ := set $discovery "httpAddress" "0.0.0.0:8081" }}{{ end -}}
{{- $server := dict "apiVersion" "config.keyferry.dev/v1alpha1" "kind" "ServerConfiguration" "objects" "CustomResources"
    "hubName" .Values.hubName "publicURL" .Values.publicURL
    "discovery" $discovery
    "api" $api
    "health" (dict "address" "0.0.0.0:8080") -}}
{{- with .Values.tls.metrics -}}
{{- if .enabled -}}
{{- $metricsTls := dict "certFile" "/etc/keyferry/metrics-tls/tls.crt" "keyFile" "/etc/keyferry/metrics-tls/tls.key" -}}
{{- if eq $.Values.tls.source "Secrets" }}{{ $metricsTls = dict "secretName" .secretName }}{{ end -}}
{{- $_ := set $server "metrics" (dict "address" "0.0.0.0:8444" "tls" $metricsTls) -}}
{{- end -}}
{{- end -}}
{{- $namespace := include "keyferry.stateNamespace" . -}}
{{- if ne $namespace "keyferry-system" }}{{ $_ := set $server "clusterResourceNamespace" $namespace }}{{ end -}}
{{- range $field := list "callerAudience" "canaryServiceAccount" "maxStaleAuthorization" "requirePodBound" -}}
{{- $value := get $config $field -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $server $field $value }}{{ end -}}
{{- end -}}
{{- range $group := list "hub" "managedIssuers" "inputs" "audit" -}}
{{- $fields := dict -}}
{{- range $field, $value := get $config $group -}}
{{- if not (kindIs "invalid" $value) }}{{ $_ := set $fields $field $value }}{{ end -}}
{{- end -}}
{{- if $fields }}{{ $_ := set $server $group $fields }}{{ end -}}
{{- end -}}
{{ toYaml $server }}
{{- end }}
