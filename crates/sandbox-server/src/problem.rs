//! Errors as problem details (RFC 9457), each with a code that programs can rely on.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{FieldError, Refused, RequestError};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::state;

/// A problem.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    code: Code,
    /// This occurrence of the problem.
    detail: String,
    /// The invalid field, if the problem is one.
    field: Option<String>,
    /// When to try again, in seconds.
    retry_after: Option<u64>,
}

/// For the API document: the same fields as below.
impl utoipa::PartialSchema for Problem {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, Type};
        let text = || ObjectBuilder::new().schema_type(Type::String);
        ObjectBuilder::new()
            .property("type", text())
            .property("title", text())
            .property("status", ObjectBuilder::new().schema_type(Type::Integer))
            .property("detail", text())
            .property("code", text().enum_values(Some(Code::ALL.iter().map(|code| code.describe().0))))
            .property("field", text())
            .required("type")
            .required("title")
            .required("status")
            .required("detail")
            .required("code")
            .into()
    }
}

impl utoipa::ToSchema for Problem {}

/// For the API document: the responses to an invalid body, on every route that takes one.
#[derive(utoipa::IntoResponses)]
#[expect(dead_code, reason = "it is only described")]
pub(crate) enum BadBody {
    /// Malformed JSON body
    #[response(status = 400, content_type = "application/problem+json")]
    Malformed(Problem),
    /// The request body arrived too slowly
    #[response(status = 408, content_type = "application/problem+json")]
    TooSlow(Problem),
    /// The body is too large, or has too many entries
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The body is not JSON
    #[response(status = 415, content_type = "application/problem+json")]
    NotJson(Problem),
    /// Invalid request
    #[response(status = 422, content_type = "application/problem+json")]
    Invalid(Problem),
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, status, title) = self.code.describe();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", &format!("/docs#{name}"))?;
        map.serialize_entry("title", title)?;
        map.serialize_entry("status", &status.as_u16())?;
        map.serialize_entry("detail", &self.detail)?;
        map.serialize_entry("code", name)?;
        if let Some(field) = &self.field {
            map.serialize_entry("field", field)?;
        }
        map.end()
    }
}

/// Defines the codes from one table: name, stable code, status and title.
macro_rules! codes {
    ($($code:ident: $name:literal, $status:ident, $title:literal;)*) => {
        /// A kind of problem.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($code,)*
        }

        impl Code {
            /// Every code.
            pub(crate) const ALL: &[Self] = &[$(Self::$code),*];

            /// Its stable name, its status, and its title.
            pub(crate) fn describe(self) -> (&'static str, StatusCode, &'static str) {
                match self {
                    $(Self::$code => ($name, StatusCode::$status, $title),)*
                }
            }
        }
    };
}

codes! {
    MalformedJson: "malformed_json", BAD_REQUEST, "malformed JSON body";
    InvalidRequest: "invalid_request", UNPROCESSABLE_ENTITY, "invalid request";
    UnknownLanguage: "unknown_language", UNPROCESSABLE_ENTITY, "unknown language";
    LanguageMissing: "language_missing", UNPROCESSABLE_ENTITY, "the language is not installed on this server";
    ToolMissing: "tool_missing", SERVICE_UNAVAILABLE, "a program that the request needs is not installed on this server";
    BodyTooLarge: "body_too_large", PAYLOAD_TOO_LARGE, "request body too large";
    TooManyEntries: "too_many_entries", PAYLOAD_TOO_LARGE, "the body has too many entries, or nests them too deeply";
    RequestTimeout: "request_timeout", REQUEST_TIMEOUT, "the request arrived too slowly";
    Unauthorized: "unauthorized", UNAUTHORIZED, "API key required";
    Forbidden: "forbidden", FORBIDDEN, "insufficient scope";
    InvalidHost: "invalid_host", BAD_REQUEST, "the request must name exactly one host";
    ForbiddenHost: "forbidden_host", FORBIDDEN, "host not allowed";
    ForbiddenOrigin: "forbidden_origin", FORBIDDEN, "origin not allowed";
    NotFound: "not_found", NOT_FOUND, "not found";
    MethodNotAllowed: "method_not_allowed", METHOD_NOT_ALLOWED, "method not allowed";
    UnsupportedMediaType: "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "the body must be application/json";
    AtCapacity: "at_capacity", TOO_MANY_REQUESTS, "at capacity";
    QueueFull: "queue_full", TOO_MANY_REQUESTS, "job queue full";
    StorageFull: "storage_full", TOO_MANY_REQUESTS, "job storage of the API key exhausted";
    DiskFull: "disk_full", INSUFFICIENT_STORAGE, "the disk of the server is full";
    IdempotencyConflict: "idempotency_conflict", CONFLICT, "idempotency key used for another request";
    Draining: "draining", SERVICE_UNAVAILABLE, "the server takes no more work";
    ShuttingDown: "shutting_down", SERVICE_UNAVAILABLE, "the server is shutting down";
    Unavailable: "unavailable", SERVICE_UNAVAILABLE, "temporarily unavailable";
    Internal: "internal_error", INTERNAL_SERVER_ERROR, "internal error";
    TooManyRequests: "too_many_requests", TOO_MANY_REQUESTS, "rate limit exceeded";
    QuotaExceeded: "quota_exceeded", TOO_MANY_REQUESTS, "daily quota of the API key exhausted";
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, retry_after: None }
    }

    #[cfg(test)]
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// Sets when to try again.
    pub(crate) fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Names the input that the problem is about.
    pub(crate) fn of_input(mut self, index: usize) -> Self {
        self.detail = format!("inputs[{index}]: {}", self.detail);
        self
    }

    /// Names the field that the problem is about.
    pub(crate) fn at(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let detail = refused.to_string();
        match refused {
            Refused::Field(FieldError { field, .. }) => Self::new(Code::InvalidRequest, detail).at(&field),
            Refused::Language(_) => Self::new(Code::UnknownLanguage, detail).at("language"),
            Refused::Missing(_) => Self::new(Code::LanguageMissing, detail),
            Refused::Request(RequestError::Missing(_)) => Self::new(Code::ToolMissing, detail),
            Refused::Request(error) => {
                Self { field: error.field().map(str::to_owned), ..Self::new(Code::InvalidRequest, detail) }
            }
            Refused::Failure(failure) if failure.request => Self::new(Code::InvalidRequest, detail),
            Refused::Failure(failure) if failure.keeper_ended => Self::new(Code::Internal, detail).retry_after(1),
            // A client that has cancelled its request does not read this.
            Refused::Cancelled => state::shutting_down(),
            Refused::Failure(_) => Self::new(Code::Internal, detail),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (_, status, _) = self.code.describe();
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use axum::body::to_bytes;
    use sandbox_jobs::{Exceeded, FileError, JobStore, StoreError, StoreLimits};

    use super::*;
    use crate::auth::Client;
    use crate::jobs;

    /// A problem of each code. The codes that no request to a healthy server can cause come from the code that reports
    /// them.
    fn example(code: Code) -> Problem {
        let detail = match code {
            Code::MalformedJson => "EOF while parsing an object at line 1 column 1",
            Code::InvalidRequest => return Problem::new(code, "timeout: expected a duration").at("timeout"),
            Code::UnknownLanguage => "unknown language 'pyhton'; did you mean 'python'?",
            Code::LanguageMissing => "a toolchain for lua was not found on this host; install Lua",
            Code::ToolMissing => "uv was not found on this host; install it (pip install uv) or put it on PATH",
            Code::BodyTooLarge => "the request body has 20971520 bytes, the maximum is 16777216 (SANDBOX_MAX_BODY)",
            Code::TooManyEntries => "the body nests lists and objects more than 64 levels deep",
            Code::RequestTimeout => "the request body arrived too slowly",
            Code::Unauthorized => "invalid API key",
            Code::Forbidden => "the API key lacks the scope 'execute'",
            Code::InvalidHost => "send exactly one Host header",
            Code::ForbiddenHost => "the host 'evil.example' is not allowed",
            Code::ForbiddenOrigin => "the origin http://evil.example is not allowed",
            Code::NotFound => "no such path; see GET /docs for all routes",
            Code::MethodNotAllowed => "this path exists, but not for this method",
            Code::UnsupportedMediaType => "send 'Content-Type: application/json'",
            Code::AtCapacity => return Problem::new(code, "at capacity: 4 concurrent runs").retry_after(1),
            Code::QueueFull => return refused(Exceeded::Waiting),
            Code::StorageFull => return refused(Exceeded::BytesPerOwner),
            Code::DiskFull => return StoreError::File(FileError::Full).into(),
            Code::IdempotencyConflict => "the Idempotency-Key was used for another request",
            Code::Draining => return state::draining(),
            Code::ShuttingDown => return state::shutting_down(),
            Code::Unavailable => return jobs::unavailable(),
            Code::Internal => "the run ended without a result",
            Code::TooManyRequests => return Problem::new(code, "the limit is 5 requests per second").retry_after(1),
            Code::QuotaExceeded => "the API key is limited to 10 runs per day",
        };
        Problem::new(code, detail)
    }

    fn refused(exceeded: Exceeded) -> Problem {
        let bounds = StoreLimits { waiting: 10, waiting_per_owner: 5, bytes_per_owner: 1 << 20 };
        jobs::refused(exceeded, &bounds, &Client::anonymous())
    }

    #[test]
    fn a_store_that_fails_is_unavailable() {
        let unreadable =
            JobStore::embedded(Path::new("/proc/none/jobs.redb"), Duration::ZERO).expect_err("no directory");
        let file = [FileError::Panicked, FileError::Closed].map(StoreError::File);
        for error in file.into_iter().chain([unreadable, StoreError::Gone]) {
            let problem = Problem::from(error);
            assert_eq!((problem.code(), problem.retry_after), (Code::Unavailable, Some(2)));
        }
        assert_eq!(Problem::from(StoreError::File(FileError::Full)).code(), Code::DiskFull);
    }

    #[tokio::test]
    async fn every_code_has_a_problem_document() {
        let mut shown = vec![];
        for code in Code::ALL {
            let problem = example(*code);
            assert_eq!(problem.code(), *code);
            let response = problem.into_response();
            let (head, body) = response.into_parts();
            let names = [header::CONTENT_TYPE, header::RETRY_AFTER, header::WWW_AUTHENTICATE];
            let headers = names.iter().filter_map(|name| {
                let value = head.headers.get(name)?.to_str().expect("text");
                Some(format!("{name}: {value}\n"))
            });
            let body: serde_json::Value =
                serde_json::from_slice(&to_bytes(body, usize::MAX).await.expect("a body")).expect("JSON");
            assert_eq!(body["status"], head.status.as_u16());
            shown.push(format!("{}\n{}{body:#}\n", head.status, headers.collect::<String>()));
        }
        let mut settings = insta::Settings::clone_current();
        settings.set_snapshot_path("../tests/server/snapshots");
        settings.set_prepend_module_to_snapshot(false);
        settings.set_omit_expression(true);
        settings.bind(|| insta::assert_snapshot!("problem-codes", shown.join("\n")));
    }
}
