//! Every setting of the server, in one table: flags, variables, keys of the file, defaults, help and reference come from it.

/// One setting.
pub(super) struct Setting {
    /// Its flag, without dashes; with underscores, its name in a file.
    pub(super) flag: &'static str,
    /// Its variables; the first is the one to use.
    pub(super) variables: &'static [&'static str],
    /// What applies if nobody says anything.
    pub(super) default: &'static str,
    /// One line for help and reference.
    pub(super) help: &'static str,
}

/// Every setting of the server's own. Those of runs (limits, caches, volumes) are variables of the executor's, and may
/// stand in a file too.
pub(super) const TABLE: &[Setting] = &[
    Setting { flag: "http-host", variables: &["HTTP_HOST"], default: "0.0.0.0", help: "address to listen on" },
    Setting {
        flag: "http-port",
        variables: &["HTTP_PORT", "SANDBOX_PORT"],
        default: "8080",
        help: "port to listen on; 0 for any",
    },
    Setting {
        flag: "http-read-timeout",
        variables: &["HTTP_READ_TIMEOUT"],
        default: "5s",
        help: "time for a client to send its request; a large body may take longer",
    },
    Setting {
        flag: "http-idle-timeout",
        variables: &["HTTP_IDLE_TIMEOUT"],
        default: "60s",
        help: "time until a connection without a request is closed, after its first one",
    },
    Setting {
        flag: "http-write-timeout",
        variables: &["HTTP_WRITE_TIMEOUT"],
        default: "10s",
        help: "time for a client to read what is sent to it; a run may take longer",
    },
    Setting {
        flag: "http-shutdown-timeout",
        variables: &["HTTP_SHUTDOWN_TIMEOUT"],
        default: "15s",
        help: "time for runs to end at shutdown",
    },
    Setting {
        flag: "capacity",
        variables: &["SANDBOX_CAPACITY"],
        default: "",
        help: "runs at one time [default: twice the number of CPUs]",
    },
    Setting {
        flag: "reserved-share",
        variables: &["SANDBOX_RESERVED_SHARE"],
        default: "25",
        help: "percentage of the capacity reserved for synchronous runs, and as much again for jobs (0 to 50)",
    },
    Setting {
        flag: "ready-cells",
        variables: &["SANDBOX_READY_CELLS"],
        default: "",
        help: "cells that are kept ready at most; 0 has each made when it is needed [default: four times the number of CPUs]",
    },
    Setting {
        flag: "zygotes",
        variables: &["SANDBOX_ZYGOTES"],
        default: "4",
        help: "interpreters that are kept warm at most, one for each set of packages; 0 has every program start its own",
    },
    Setting { flag: "max-body", variables: &["SANDBOX_MAX_BODY"], default: "16m", help: "largest request body" },
    Setting {
        flag: "api-keys",
        variables: &["SANDBOX_API_KEYS"],
        default: "",
        help: "API keys, or sha256:… of them, separated by commas",
    },
    Setting {
        flag: "api-keys-file",
        variables: &["SANDBOX_API_KEYS_FILE"],
        default: "",
        help: "file with API keys, one on each line",
    },
    Setting {
        flag: "allowed-hosts",
        variables: &["SANDBOX_ALLOWED_HOSTS"],
        default: "",
        help: "more host names of this server, separated by commas, for requests without keys; * accepts any",
    },
    Setting {
        flag: "cors-origins",
        variables: &["SANDBOX_CORS_ORIGINS"],
        default: "",
        help: "origins (https://app.example.com, separated by commas) whose web pages may use the server; * needs keys",
    },
    Setting {
        flag: "max-held",
        variables: &["SANDBOX_MAX_HELD"],
        default: "512m",
        help: "memory for requests and answers that are on their way, half of it for each",
    },
    Setting {
        flag: "max-connections",
        variables: &["SANDBOX_MAX_CONNECTIONS"],
        default: "4096",
        help: "connections at one time; when it is reached, the connection that has been idle longest is closed",
    },
    Setting {
        flag: "max-connections-per-address",
        variables: &["SANDBOX_MAX_CONNECTIONS_PER_ADDRESS"],
        default: "",
        help: "connections at one time from one IPv4 address or IPv6 /64 network [default: half of max-connections]",
    },
    Setting {
        flag: "max-streams",
        variables: &["SANDBOX_MAX_STREAMS"],
        default: "2048",
        help: "event streams and requests that wait for a job at one time, half of them for one client",
    },
    Setting { flag: "log-format", variables: &["SANDBOX_LOG_FORMAT"], default: "pretty", help: "pretty or json" },
    Setting {
        flag: "log-level",
        variables: &["SANDBOX_LOG_LEVEL"],
        default: "info",
        help: "error, warn, info, debug or trace",
    },
    Setting {
        flag: "rate-limit",
        variables: &["SANDBOX_RATE_LIMIT"],
        default: "",
        help: "requests a second for each key, or for each address where no key is needed [default: no limit]",
    },
    Setting {
        flag: "redis-addr",
        variables: &["REDIS_ADDR"],
        default: "",
        help: "Redis (HOST:PORT) for jobs that many servers share; without it they are in a file",
    },
    Setting { flag: "redis-password", variables: &["REDIS_PASSWORD"], default: "", help: "its password" },
    Setting { flag: "redis-db", variables: &["REDIS_DB"], default: "0", help: "the number of its database" },
    Setting { flag: "queue", variables: &["SANDBOX_QUEUE"], default: "10000", help: "jobs that may wait" },
    Setting {
        flag: "queue-per-key",
        variables: &["SANDBOX_QUEUE_PER_KEY"],
        default: "",
        help: "jobs of one API key that may wait [default: half of --queue if there are several keys]",
    },
    Setting {
        flag: "job-storage",
        variables: &["SANDBOX_JOB_STORAGE"],
        default: "4g",
        help: "requests, results and events that the jobs of one API key may store",
    },
    Setting {
        flag: "job-retention",
        variables: &["SANDBOX_JOB_RETENTION"],
        default: "24h",
        help: "how long jobs are kept after their end",
    },
    Setting {
        flag: "webhook-allow",
        variables: &["SANDBOX_WEBHOOK_ALLOW"],
        default: "",
        help: "hosts (HOST or HOST:PORT, separated by commas) that webhooks may reach though they are not public",
    },
    Setting {
        flag: "webhook-retry",
        variables: &["SANDBOX_WEBHOOK_RETRY"],
        default: "5s",
        help: "time until a webhook is tried again; four times as long each time, six attempts in all",
    },
    Setting {
        flag: "otlp-endpoint",
        variables: &["OTEL_EXPORTER_OTLP_ENDPOINT"],
        default: "",
        help: "an OpenTelemetry collector to send a span for every run to, such as http://localhost:4318 (feature otlp)",
    },
    Setting {
        flag: "user",
        variables: &["SANDBOX_USER"],
        default: "nobody",
        help: "who the server becomes when it is started as root; the keeper stays root",
    },
    Setting {
        flag: "backend",
        variables: &["SANDBOX_BACKEND"],
        default: "native",
        help: "what makes cells: native, oci or docker",
    },
    Setting {
        flag: "runtimes",
        variables: &["SANDBOX_RUNTIMES"],
        default: "",
        help: "directory with more definitions of languages",
    },
];
