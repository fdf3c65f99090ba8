{{/* Refuses values that are valid one by one, and wrong together. No message has a value that may be secret. */}}
{{- define "dbcontroller.check" -}}
{{- $password := `mongodb(\+srv)?://[^/@"]*:[^$/@"][^/@"]*@` -}}
{{- if regexMatch $password (toJson .Values.config) -}}
{{- fail "config has a connection string with a password: put it into a secret, name the secret in env, and write $(NAME)" -}}
{{- end -}}
{{- if regexMatch $password (toJson .Values.proxy.config) -}}
{{- fail "proxy.config has a connection string with a password: put it into a secret, name the secret in proxy.env, and write $(NAME)" -}}
{{- end -}}
{{- range $i, $hook := default list .Values.config.hooks -}}
{{- if and $hook.secret (not (hasPrefix "$(" $hook.secret)) -}}
{{- fail (printf "config.hooks[%d].secret is in the values: put it into a secret, name the secret in env, and write $(NAME)" $i) -}}
{{- end -}}
{{- end -}}
{{- if and (not .Values.tls.secret) (not .Values.insecure) -}}
{{- fail "tls.secret is empty: name a secret with tls.crt and tls.key; or set insecure: true, which lets everyone who reaches the pods do everything" -}}
{{- end -}}
{{- if and .Values.tls.secret .Values.insecure -}}
{{- fail "insecure is true and tls.secret is set: leave one of them out" -}}
{{- end -}}
{{- if and .Values.tls.clientCA (not .Values.tls.secret) -}}
{{- fail "tls.clientCA needs tls.secret" -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false: give serviceAccount.name" -}}
{{- end -}}
{{- $monitor := .Values.monitoring.serviceMonitor -}}
{{- if and $monitor.enabled .Values.tls.secret (not (and $monitor.token.secret $monitor.ca.secret)) -}}
{{- fail "monitoring.serviceMonitor: with tls.secret Prometheus needs token.secret, of the role viewer, and ca.secret" -}}
{{- end -}}
{{- range $list, $items := pick .Values.config "kinds" "updates" -}}
{{- range $i, $item := $items -}}
{{- if $item.lens -}}
{{- if not (hasKey $.Values.lenses (trimPrefix "lenses/" $item.lens)) -}}
{{- fail (printf "config.%s[%d].lens: %s is not in lenses: give its text there, and name it lenses/NAME" $list $i $item.lens) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.proxy.enabled -}}
{{- if not .Values.proxy.tls.secret -}}
{{- fail "proxy.tls.secret is empty: a proxy for other machines needs tls.crt and tls.key" -}}
{{- end -}}
{{- if not (and .Values.proxy.config.upstream .Values.proxy.config.deployments) -}}
{{- fail "proxy.config: give upstream and deployments" -}}
{{- end -}}
{{- if not (or .Values.proxy.config.users .Values.proxy.tls.clientCA) -}}
{{- fail "proxy.config.users is empty: name users, or set proxy.tls.clientCA" -}}
{{- end -}}
{{- end -}}
{{- end -}}
