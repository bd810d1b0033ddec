//! Every setting of the server, in one table: flags, variables, keys of the file, defaults, help and reference come from it.

/// One setting.
pub(super) struct Setting {
    /// Its flag, without dashes; with underscores, its name in a file.
    pub(super) flag: &'static str,
    /// Its variables; the first is the one to use.
    pub(super) variables: &'static [&'static str],
    /// The value if it is not set.
    pub(super) default: &'static str,
    /// One line for help and reference.
    pub(super) help: &'static str,
}

/// Every setting of the server itself. Those of runs (limits, caches, volumes) are variables of the executor, and may
/// stand in a file too.
pub(super) const TABLE: &[Setting] = &[
    Setting { flag: "http-host", variables: &["HTTP_HOST"], default: "0.0.0.0", help: "Listen on this address" },
    Setting {
        flag: "http-port",
        variables: &["HTTP_PORT", "SANDBOX_PORT"],
        default: "8080",
        help: "Listen on this port; 0 for any free one",
    },
    Setting {
        flag: "http-read-timeout",
        variables: &["HTTP_READ_TIMEOUT"],
        default: "5s",
        help: "Limit the time in which a client sends its request; extended for large bodies",
    },
    Setting {
        flag: "http-idle-timeout",
        variables: &["HTTP_IDLE_TIMEOUT"],
        default: "60s",
        help: "Close connections that were idle for this long after a request",
    },
    Setting {
        flag: "http-write-timeout",
        variables: &["HTTP_WRITE_TIMEOUT"],
        default: "10s",
        help: "Limit the time in which a client reads the response; does not limit runs",
    },
    Setting {
        flag: "http-shutdown-timeout",
        variables: &["HTTP_SHUTDOWN_TIMEOUT"],
        default: "15s",
        help: "Wait this long for runs to end at shutdown",
    },
    Setting {
        flag: "role",
        variables: &["SANDBOX_ROLE"],
        default: "all",
        help: "Serve clients and run jobs (all), only serve clients (api), or only run jobs (worker)",
    },
    Setting {
        flag: "labels",
        variables: &["SANDBOX_LABELS"],
        default: "",
        help: "Take jobs that ask for these labels (gpu, comma-separated), besides jobs without labels",
    },
    Setting {
        flag: "capacity",
        variables: &["SANDBOX_CAPACITY"],
        default: "",
        help: "Limit the number of concurrent runs [default: twice the number of CPUs]",
    },
    Setting {
        flag: "reserved-share",
        variables: &["SANDBOX_RESERVED_SHARE"],
        default: "25",
        help: "Reserve this percentage of the capacity for synchronous runs, and the same for jobs (0 to 50)",
    },
    Setting {
        flag: "ready-cells",
        variables: &["SANDBOX_READY_CELLS"],
        default: "",
        help: "Keep up to this many cells ready; 0 creates each on demand [default: four times the number of CPUs]",
    },
    Setting {
        flag: "zygotes",
        variables: &["SANDBOX_ZYGOTES"],
        default: "4",
        help: "Keep up to this many interpreters warm, one for each set of packages; 0 starts every program cold",
    },
    Setting {
        flag: "prepare",
        variables: &["SANDBOX_PREPARE"],
        default: "all",
        help: "Prepare the toolchains of these languages (go,java) in the background after the start; all, or none",
    },
    Setting {
        flag: "max-body",
        variables: &["SANDBOX_MAX_BODY"],
        default: "16m",
        help: "Limit the size of a request body",
    },
    Setting {
        flag: "api-keys",
        variables: &["SANDBOX_API_KEYS"],
        default: "",
        help: "Accept these API keys, or sha256:… of them (comma-separated)",
    },
    Setting {
        flag: "api-keys-file",
        variables: &["SANDBOX_API_KEYS_FILE"],
        default: "",
        help: "Read API keys from a file, one per line",
    },
    Setting {
        flag: "allowed-hosts",
        variables: &["SANDBOX_ALLOWED_HOSTS"],
        default: "",
        help: "Accept these additional host names (comma-separated) in requests without a key; * accepts any",
    },
    Setting {
        flag: "cors-origins",
        variables: &["SANDBOX_CORS_ORIGINS"],
        default: "",
        help: "Allow web pages of these origins (https://app.example.com, comma-separated); * requires API keys",
    },
    Setting {
        flag: "max-held",
        variables: &["SANDBOX_MAX_HELD"],
        default: "512m",
        help: "Limit the memory for requests and responses in flight, half of it for each",
    },
    Setting {
        flag: "max-connections",
        variables: &["SANDBOX_MAX_CONNECTIONS"],
        default: "4096",
        help: "Limit the number of connections; beyond it, the connection that has been idle longest is closed",
    },
    Setting {
        flag: "max-connections-per-address",
        variables: &["SANDBOX_MAX_CONNECTIONS_PER_ADDRESS"],
        default: "",
        help: "Limit the number of connections from one IPv4 address or IPv6 /64 network [default: half of max-connections]",
    },
    Setting {
        flag: "max-streams",
        variables: &["SANDBOX_MAX_STREAMS"],
        default: "2048",
        help: "Limit the number of event streams and waiting requests; one client may have half of them",
    },
    Setting {
        flag: "log-format",
        variables: &["SANDBOX_LOG_FORMAT"],
        default: "pretty",
        help: "Log format: pretty or json",
    },
    Setting {
        flag: "log-level",
        variables: &["SANDBOX_LOG_LEVEL"],
        default: "info",
        help: "Log level: error, warn, info, debug or trace",
    },
    Setting {
        flag: "rate-limit",
        variables: &["SANDBOX_RATE_LIMIT"],
        default: "",
        help: "Limit requests per second for each API key, or for each address without keys [default: unlimited]",
    },
    Setting {
        flag: "redis-addr",
        variables: &["REDIS_ADDR"],
        default: "",
        help: "Store jobs in Redis (HOST:PORT), shared by several servers [default: a file in the data directory]",
    },
    Setting {
        flag: "redis-url",
        variables: &["REDIS_URL"],
        default: "",
        help: "Store jobs in the Redis at this URL: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://",
    },
    Setting {
        flag: "redis-url-file",
        variables: &["REDIS_URL_FILE"],
        default: "",
        help: "Read the URL of Redis from a file",
    },
    Setting { flag: "redis-password", variables: &["REDIS_PASSWORD"], default: "", help: "Redis password" },
    Setting {
        flag: "redis-password-file",
        variables: &["REDIS_PASSWORD_FILE"],
        default: "",
        help: "Read the Redis password from a file",
    },
    Setting { flag: "redis-db", variables: &["REDIS_DB"], default: "0", help: "Redis database number" },
    Setting {
        flag: "redis-tls-ca",
        variables: &["REDIS_TLS_CA"],
        default: "",
        help: "Check the certificate of Redis against the ones in this PEM file [default: public authorities]",
    },
    Setting {
        flag: "redis-tls-cert",
        variables: &["REDIS_TLS_CERT"],
        default: "",
        help: "Present the certificate in this PEM file to Redis; needs --redis-tls-key",
    },
    Setting {
        flag: "redis-tls-key",
        variables: &["REDIS_TLS_KEY"],
        default: "",
        help: "Read the private key of --redis-tls-cert from this PEM file",
    },
    Setting {
        flag: "redis-wait-replicas",
        variables: &["SANDBOX_REDIS_WAIT_REPLICAS"],
        default: "0",
        help: "Acknowledge jobs and results once this many Redis replicas have them",
    },
    Setting { flag: "queue", variables: &["SANDBOX_QUEUE"], default: "10000", help: "Limit the number of queued jobs" },
    Setting {
        flag: "queue-per-key",
        variables: &["SANDBOX_QUEUE_PER_KEY"],
        default: "",
        help: "Limit the number of queued jobs of each API key [default: half of --queue if there are several keys]",
    },
    Setting {
        flag: "job-storage",
        variables: &["SANDBOX_JOB_STORAGE"],
        default: "4g",
        help: "Limit the storage of each API key for requests, results and events of jobs",
    },
    Setting {
        flag: "job-retention",
        variables: &["SANDBOX_JOB_RETENTION"],
        default: "24h",
        help: "Keep jobs for this long after they end",
    },
    Setting {
        flag: "webhook-allow",
        variables: &["SANDBOX_WEBHOOK_ALLOW"],
        default: "",
        help: "Allow webhooks to these hosts (HOST or HOST:PORT, comma-separated) although they are not public",
    },
    Setting {
        flag: "webhook-retry",
        variables: &["SANDBOX_WEBHOOK_RETRY"],
        default: "5s",
        help: "Wait this long before the first retry of a webhook; four times longer after each, up to six attempts",
    },
    Setting {
        flag: "otlp-endpoint",
        variables: &["OTEL_EXPORTER_OTLP_ENDPOINT"],
        default: "",
        help: "Send a span for every run to an OpenTelemetry collector, such as http://localhost:4318 (feature otlp)",
    },
    Setting {
        flag: "user",
        variables: &["SANDBOX_USER"],
        default: "nobody",
        help: "Switch to this user when started as root; the keeper stays root",
    },
    Setting {
        flag: "backend",
        variables: &["SANDBOX_BACKEND"],
        default: "native",
        help: "Backend that creates cells: native, oci or docker",
    },
    Setting {
        flag: "runtimes",
        variables: &["SANDBOX_RUNTIMES"],
        default: "",
        help: "Read more language definitions from a directory",
    },
];
