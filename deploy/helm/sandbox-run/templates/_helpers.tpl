{{- define "sandbox.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select pods of a component. They never change between versions. */}}
{{- define "sandbox.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
sandbox-run/pool: {{ . }}
{{- end }}
{{- end -}}

{{- define "sandbox.labels" -}}
{{ include "sandbox.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Seconds that the longest run can take: installing, compiling, running. */}}
{{- define "sandbox.longest" -}}
{{- add (int .Values.limits.run) (int .Values.limits.compile) (int .Values.limits.install) -}}
{{- end -}}

{{- define "sandbox.podSecurity" -}}
{{- if eq .isolation "full" }}
# The server drops root privileges at start; the keeper needs them for user ids and cgroups of cells.
runAsUser: 0
runAsGroup: 0
{{- else }}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
{{- end }}
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  # The default profile refuses namespaces and mounts. Cells have a stricter filter.
  type: {{ eq .isolation "reduced" | ternary "RuntimeDefault" "Unconfined" }}
{{- if ne .isolation "reduced" }}
appArmorProfile:
  # The default profile refuses mounts.
  type: Unconfined
{{- end }}
{{- end -}}

{{- define "sandbox.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if eq .isolation "full" }}
  add: [SYS_ADMIN, NET_ADMIN, SETUID, SETGID, SETPCAP, CHOWN, FOWNER, DAC_OVERRIDE, KILL, SYS_CHROOT, SYS_PTRACE]
  {{- end }}
{{- if eq .isolation "namespaces" }}
# A process without capabilities can mount a new /proc only if the container's hides nothing.
procMount: Unmasked
{{- end }}
{{- end -}}

{{/* The pod of a server. Takes root, component, pool (optional), role, isolation, options. */}}
{{- define "sandbox.pod" -}}
{{- $values := .root.Values -}}
{{- $longest := int (include "sandbox.longest" .root) -}}
{{- $settings := dict
      "HTTP_HOST" "0.0.0.0"
      "HTTP_PORT" "8080"
      "HTTP_SHUTDOWN_TIMEOUT" (printf "%ds" (add $longest 15))
      "SANDBOX_ROLE" .role
      "SANDBOX_LOG_FORMAT" "json"
      "SANDBOX_DATA_DIR" "/var/lib/sandbox-server/data"
      "SANDBOX_ISOLATION" (eq .isolation "reduced" | ternary "reduced" "full")
      "SANDBOX_MAX_TIMEOUT" (printf "%ds" (int $values.limits.run))
      "SANDBOX_COMPILE_TIMEOUT" (printf "%ds" (int $values.limits.compile))
      "SANDBOX_INSTALL_TIMEOUT" (printf "%ds" (int $values.limits.install)) -}}
{{- if eq .isolation "full" }}{{ $_ := set $settings "SANDBOX_REQUIRE" "all" }}{{ end -}}
{{- if $values.redis.enabled }}{{ $_ := set $settings "REDIS_ADDR" (printf "%s-redis:6379" (include "sandbox.name" .root)) }}{{ end -}}
{{- $tls := not $values.redis.enabled | ternary $values.redis.external.tlsSecret "" -}}
{{- if $tls }}{{ $_ := set $settings "REDIS_TLS_CA" "/etc/sandbox-server/redis/ca.crt" }}{{ end -}}
{{- if and $tls $values.redis.external.clientCertificate }}
{{- $_ := set $settings "REDIS_TLS_CERT" "/etc/sandbox-server/redis/tls.crt" }}
{{- $_ := set $settings "REDIS_TLS_KEY" "/etc/sandbox-server/redis/tls.key" }}
{{- end -}}
{{- if not $values.apiKeys.insecure }}{{ $_ := set $settings "SANDBOX_API_KEYS_FILE" "/etc/sandbox-server/keys/keys" }}{{ end -}}
{{- if and $values.apiKeys.insecure (eq .component "api") }}{{ $_ := set $settings "SANDBOX_ALLOWED_HOSTS" (printf "%s,%s.%s.svc" (include "sandbox.name" .root) (include "sandbox.name" .root) .root.Release.Namespace) }}{{ end -}}
{{- /* An API server runs nothing, but reports a capacity, with which saturation is computed. */}}
{{- if eq .role "api" }}{{ $_ := set $settings "SANDBOX_CAPACITY" "1" }}{{ end -}}
{{- with .options.capacity }}{{ $_ := set $settings "SANDBOX_CAPACITY" (toString .) }}{{ end -}}
{{- with .options.labels }}{{ $_ := set $settings "SANDBOX_LABELS" (join "," .) }}{{ end -}}
{{- $settings = mustMergeOverwrite $settings (deepCopy $values.settings) (deepCopy (.options.settings | default dict)) -}}
metadata:
  labels:
    {{- include "sandbox.labels" . | nindent 4 }}
  annotations:
    {{- if $values.metrics.annotations }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "8080"
    prometheus.io/path: /metrics
    {{- end }}
    {{- with .options.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "sandbox.name" .root }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- if eq .isolation "namespaces" }}
  hostUsers: false
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .options.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  # Longer than the longest run, so that a drained pod loses no work.
  terminationGracePeriodSeconds: {{ add $longest $values.drainDelay 30 }}
  securityContext:
    {{- include "sandbox.podSecurity" . | nindent 4 }}
  containers:
    - name: server
      image: "{{ $values.image.repository }}:{{ $values.image.tag | default .root.Chart.AppVersion }}"
      imagePullPolicy: {{ $values.image.pullPolicy }}
      {{- if eq .isolation "full" }}
      # Container runtimes mount the container's own cgroup read-only. Cells are cgroups below it, so that the limits
      # of the pod hold for them too.
      command: [/bin/sh, -c, "mount -o remount,bind,rw /sys/fs/cgroup && exec /usr/local/bin/sandbox-server"]
      {{- else }}
      command: [/usr/local/bin/sandbox-server]
      {{- end }}
      ports:
        - { name: http, containerPort: 8080 }
      env:
        {{- range $name, $value := $settings }}
        - { name: {{ $name }}, value: {{ $value | toString | quote }} }
        {{- end }}
        {{- if and $values.redis.enabled $values.redis.existingSecret }}
        - name: REDIS_PASSWORD
          valueFrom: { secretKeyRef: { name: {{ $values.redis.existingSecret }}, key: password } }
        {{- end }}
        {{- if not $values.redis.enabled }}
        - name: REDIS_URL
          valueFrom: { secretKeyRef: { name: {{ $values.redis.external.existingSecret }}, key: url } }
        {{- end }}
      startupProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 1
        failureThreshold: 60
      livenessProbe:
        httpGet: { path: /livez, port: http }
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: { path: /readyz, port: http }
        periodSeconds: 2
        timeoutSeconds: 3
        failureThreshold: 2
      lifecycle:
        # The pod stays reachable until it has left the endpoints of its Service.
        preStop: { sleep: { seconds: {{ $values.drainDelay }} } }
      securityContext:
        {{- include "sandbox.containerSecurity" . | nindent 8 }}
      resources:
        {{- toYaml .options.resources | nindent 8 }}
      volumeMounts:
        - { name: data, mountPath: /var/lib/sandbox-server }
        - { name: tmp, mountPath: /tmp }
        {{- if not $values.apiKeys.insecure }}
        - { name: keys, mountPath: /etc/sandbox-server/keys, readOnly: true }
        {{- end }}
        {{- if $tls }}
        - { name: redis-tls, mountPath: /etc/sandbox-server/redis, readOnly: true }
        {{- end }}
  volumes:
    - name: data
      emptyDir: { sizeLimit: {{ .options.dataSize }} }
    - name: tmp
      emptyDir: { sizeLimit: 1Gi }
    {{- if not $values.apiKeys.insecure }}
    - name: keys
      secret: { secretName: {{ $values.apiKeys.existingSecret }}, defaultMode: 0440 }
    {{- end }}
    {{- with $tls }}
    - name: redis-tls
      secret: { secretName: {{ . }}, defaultMode: 0440 }
    {{- end }}
  {{- with .options.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .options.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .options.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .options.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
