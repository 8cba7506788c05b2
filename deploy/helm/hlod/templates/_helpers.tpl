{{- /* SPDX-License-Identifier: Apache-2.0 */ -}}
{{- define "hlod.name" -}}
{{- if contains "hlod" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-hlod{{ end -}}
{{- end }}
{{- define "hlod.fullname" -}}
{{ include "hlod.name" . | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- define "hlod.select" -}}
app.kubernetes.io/name: hlod
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "hlod.labels" -}}
{{ include "hlod.select" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}
{{- define "hlod.secret" -}}
{{ .Values.secrets.existing | default (include "hlod.fullname" .) }}
{{- end }}
{{- define "hlod.tls" -}}
{{- with .Values.tls }}{{ if or .existing .cert }}yes{{ end }}{{ end -}}
{{- end }}
{{- define "hlod.tlsSecret" -}}
{{ .Values.tls.existing | default (printf "%s-tls" (include "hlod.fullname" .)) }}
{{- end }}
{{- define "hlod.ca" -}}
{{- with .Values.tls }}{{ if ternary .hasCa .ca (ne .existing "") }}yes{{ end }}{{ end -}}
{{- end }}
{{- define "hlod.scheme" -}}
{{ ternary "https" "http" (eq (include "hlod.tls" .) "yes") }}
{{- end }}
{{- /* Where NATS is: what was said, or the chart beside, by the name that it gives its service. */ -}}
{{- define "hlod.nats" -}}
{{- $own := ternary .Release.Name (printf "%s-nats" .Release.Name) (contains "nats" .Release.Name) -}}
{{- $own = .Values.nats.fullnameOverride | default $own -}}
{{ .Values.cluster.nats | default (list (printf "nats://%s:4222" $own)) | toJson }}
{{- end }}
{{- /* A value of hlod's file. */ -}}
{{- define "hlod.value" -}}
{{- if kindIs "slice" . }}[{{ range $i, $x := . }}{{ if $i }}, {{ end }}{{ $x | toString | toJson }}{{ end }}]
{{- else if kindIs "float64" . }}{{ . | int64 }}
{{- else if kindIs "string" . }}{{ . | toJson }}
{{- else }}{{ . }}
{{- end }}
{{- end }}
{{- /* hlod's file: what the chart says, and `config`. */ -}}
{{- define "hlod.toml" -}}
{{- $own := list "http" "grpc" "data" "tokens" "cluster" "cluster_name" "cluster_secret" "cluster_address" "cluster_credentials" "node" "cache_remote" "cache_key" "peer_token" "tls_cert" "tls_key" "tls_client_ca" "peer_ca" "drain_ms" "leave_ms" -}}
{{- $c := dict "http" "0.0.0.0:8000" "grpc" "0.0.0.0:8001" "data" "/var/lib/hlod" "tokens" "/etc/hlod/secrets/tokens" "drain_ms" (mul 1000 .Values.drainSeconds) "leave_ms" (mul 1000 .Values.leaveSeconds) -}}
{{- $remotes := list -}}
{{- if .Values.cache.peers -}}
{{- $peers := printf "dns:%s-headless.%s.svc:8000" (include "hlod.fullname" .) .Release.Namespace -}}
{{- $remotes = append $remotes (ternary (printf "%s tls" $peers) $peers (eq (include "hlod.tls" .) "yes")) -}}
{{- $_ := set $c "peer_token" "/etc/hlod/secrets/peer.token" -}}
{{- end -}}
{{- with concat $remotes .Values.cache.remotes -}}
{{- $_ := set $c "cache_remote" . -}}
{{- $_ := set $c "cache_key" "/etc/hlod/secrets/cache.key" -}}
{{- end -}}
{{- if .Values.cluster.enabled -}}
{{- $_ := set $c "cluster" (include "hlod.nats" . | fromJsonArray) -}}
{{- $_ := set $c "cluster_name" .Values.cluster.name -}}
{{- $_ := set $c "cluster_secret" "/etc/hlod/secrets/cluster.secret" -}}
{{- if .Values.cluster.credentials }}{{ $_ := set $c "cluster_credentials" "/etc/hlod/secrets/nats.creds" }}{{ end -}}
{{- end -}}
{{- if include "hlod.tls" . -}}
{{- $_ := set $c "tls_cert" "/etc/hlod/tls/tls.crt" -}}
{{- $_ := set $c "tls_key" "/etc/hlod/tls/tls.key" -}}
{{- if and (include "hlod.ca" .) (or .Values.cache.peers .Values.cluster.enabled) }}{{ $_ := set $c "peer_ca" "/etc/hlod/tls/ca.crt" }}{{ end -}}
{{- if .Values.tls.clientCa }}{{ $_ := set $c "tls_client_ca" "/etc/hlod/tls/ca.crt" }}{{ end -}}
{{- end -}}
{{- range $k, $v := .Values.config -}}
{{- if has $k $own }}{{ fail (printf "config.%s: the chart says that itself" $k) }}{{ end -}}
{{- $_ := set $c $k $v -}}
{{- end -}}
{{- range $k, $v := $c }}
{{ $k }} = {{ include "hlod.value" $v }}
{{- end }}
{{- end }}
{{- /* What contradicts itself, or lacks. */ -}}
{{- define "hlod.judge" -}}
{{- with .Values -}}
{{- if not (or .secrets.existing .secrets.tokens) }}{{ fail "secrets.existing or secrets.tokens: hlod does not listen beyond its machine without tokens" }}{{ end -}}
{{- if not .secrets.existing -}}
{{- if and .cluster.enabled (not .secrets.clusterSecret) }}{{ fail "secrets.clusterSecret: the nodes of a cluster share one (openssl rand -hex 32)" }}{{ end -}}
{{- if and (or .cache.peers .cache.remotes) (not .secrets.cacheKey) }}{{ fail "secrets.cacheKey: what comes from a cache must be signed (openssl rand -hex 32)" }}{{ end -}}
{{- if and .cache.peers (not .secrets.peerToken) }}{{ fail "secrets.peerToken: nodes show each other one (hlo tokens add peer --scopes peer)" }}{{ end -}}
{{- if and .cluster.credentials (not .secrets.natsCredentials) }}{{ fail "secrets.natsCredentials: cluster.credentials asks for them" }}{{ end -}}
{{- end -}}
{{- if and .cluster.enabled (not .cluster.nats) (not .nats.enabled) }}{{ fail "cluster.nats, or nats.enabled: a cluster needs NATS (or cluster.enabled=false)" }}{{ end -}}
{{- if and (not .cluster.enabled) (gt (int .replicas) 1) }}{{ fail "replicas: more than one need cluster.enabled, or each has models of its own" }}{{ end -}}
{{- if and .tls.existing .tls.cert }}{{ fail "tls.existing and tls.cert: one of them" }}{{ end -}}
{{- if ne (empty .tls.cert) (empty .tls.key) }}{{ fail "tls.cert and tls.key belong together" }}{{ end -}}
{{- end -}}
{{- if and .Values.tls.clientCa (not (include "hlod.ca" .)) }}{{ fail "tls.clientCa: of which CA? (tls.ca, tls.hasCa)" }}{{ end -}}
{{- end }}
