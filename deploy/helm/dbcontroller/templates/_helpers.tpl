{{- define "dbcontroller.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* Names of resources have 63 bytes at most. The longest suffix is -proxy. */}}
{{- define "dbcontroller.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "dbcontroller.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "dbcontroller.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "dbcontroller.labels" -}}
app.kubernetes.io/name: {{ include "dbcontroller.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* Labels that select pods: a dict of root and component. */}}
{{- define "dbcontroller.selector" -}}
app.kubernetes.io/name: {{ include "dbcontroller.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "dbcontroller.serviceAccount" -}}
{{- default (include "dbcontroller.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "dbcontroller.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "dbcontroller.scheme" -}}
{{- if .Values.tls.secret }}https{{ else }}http{{ end -}}
{{- end -}}

{{/* The controllers' configuration: that of the values, with what the chart sets. */}}
{{- define "dbcontroller.config" -}}
{{- $name := include "dbcontroller.fullname" . -}}
{{- $access := deepCopy (default dict .Values.config.access) -}}
{{- if .Values.tls.secret -}}
{{- $tls := dict "cert" "/etc/dbcontroller/tls/tls.crt" "key" "/etc/dbcontroller/tls/tls.key" -}}
{{- if .Values.tls.clientCA -}}{{- $_ := set $tls "clientCA" "/etc/dbcontroller/tls/ca.crt" -}}{{- end -}}
{{- $_ := set $access "tls" $tls -}}
{{- end -}}
{{- $own := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) -}}
{{- $_ := set $access "hosts" (concat $own (default list $access.hosts) | uniq) -}}
{{- $address := printf "%s://%s.%s.svc:7090" (include "dbcontroller.scheme" .) $name .Release.Namespace -}}
{{- $api := merge (dict "listen" "0.0.0.0:7090" "applications" "0.0.0.0:7091") (default dict .Values.config.api) (dict "address" $address) -}}
{{- $operator := merge (dict "metrics" "0.0.0.0:9090") (default dict .Values.config.operator) -}}
{{- toYaml (merge (dict "access" $access "api" $api "operator" $operator) (deepCopy .Values.config)) -}}
{{- end -}}

{{- define "dbcontroller.proxyConfig" -}}
{{- $tls := dict "cert" "/etc/dbcontroller/tls/tls.crt" "key" "/etc/dbcontroller/tls/tls.key" -}}
{{- if .Values.proxy.tls.clientCA -}}{{- $_ := set $tls "clientCA" "/etc/dbcontroller/tls/ca.crt" -}}{{- end -}}
{{- toYaml (merge (dict "listen" "0.0.0.0:27018" "metrics" "127.0.0.1:9091" "tls" $tls) (deepCopy .Values.proxy.config)) -}}
{{- end -}}

{{/* What both pods have: a dict of root and component. */}}
{{- define "dbcontroller.podSpec" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . | quote }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  # Mounted secrets are readable by this group.
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "dbcontroller.selector" . | fromYaml)) }}
{{- with .root.Values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
- {{ merge (deepCopy .) $selector | toYaml | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "dbcontroller.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "dbcontroller.env" -}}
{{- range . }}
- name: {{ .name }}
  valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .key | quote }}}}
{{- end }}
{{- end -}}

{{/* Mounts and volumes of secrets: a dict of tls and files. */}}
{{- define "dbcontroller.mounts" -}}
{{- if .tls }}
- {name: tls, mountPath: /etc/dbcontroller/tls, readOnly: true}
{{- end }}
{{- range .files }}
- {name: {{ printf "secret-%s" (. | sha256sum | trunc 12) }}, mountPath: {{ printf "/etc/dbcontroller/secrets/%s" . | quote }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "dbcontroller.volumes" -}}
{{- if .tls }}
- {name: tls, secret: {secretName: {{ .tls | quote }}, defaultMode: 0440}}
{{- end }}
{{- range .files }}
- {name: {{ printf "secret-%s" (. | sha256sum | trunc 12) }}, secret: {secretName: {{ . | quote }}, defaultMode: 0440}}
{{- end }}
{{- end -}}
