//! Errors as problem details (RFC 9457), each with a code that programs can rely on.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sandbox_executor::{FieldError, Refused};
use serde::ser::{Serialize, SerializeMap, Serializer};

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
            .property("code", text().enum_values(Some(Code::ALL.map(|code| code.describe().0))))
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

/// A kind of problem: a stable code, its status and its title.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    MalformedJson,
    InvalidRequest,
    UnknownLanguage,
    LanguageMissing,
    BodyTooLarge,
    TooManyEntries,
    RequestTimeout,
    Unauthorized,
    Forbidden,
    InvalidHost,
    ForbiddenHost,
    ForbiddenOrigin,
    NotFound,
    MethodNotAllowed,
    UnsupportedMediaType,
    AtCapacity,
    QueueFull,
    StorageFull,
    DiskFull,
    StoreUnavailable,
    IdempotencyConflict,
    TooManyRequests,
    QuotaExceeded,
    Draining,
    ShuttingDown,
    Unavailable,
    Internal,
}

impl Code {
    /// Every code.
    pub(crate) const ALL: [Self; 27] = [
        Self::MalformedJson,
        Self::InvalidRequest,
        Self::UnknownLanguage,
        Self::LanguageMissing,
        Self::BodyTooLarge,
        Self::TooManyEntries,
        Self::RequestTimeout,
        Self::Unauthorized,
        Self::Forbidden,
        Self::InvalidHost,
        Self::ForbiddenHost,
        Self::ForbiddenOrigin,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::AtCapacity,
        Self::QueueFull,
        Self::StorageFull,
        Self::DiskFull,
        Self::StoreUnavailable,
        Self::IdempotencyConflict,
        Self::Draining,
        Self::ShuttingDown,
        Self::Unavailable,
        Self::Internal,
        Self::TooManyRequests,
        Self::QuotaExceeded,
    ];

    /// Its stable name, its status, and what it means.
    pub(crate) fn describe(self) -> (&'static str, StatusCode, &'static str) {
        match self {
            Self::MalformedJson => ("malformed_json", StatusCode::BAD_REQUEST, "malformed JSON body"),
            Self::InvalidRequest => ("invalid_request", StatusCode::UNPROCESSABLE_ENTITY, "invalid request"),
            Self::UnknownLanguage => ("unknown_language", StatusCode::UNPROCESSABLE_ENTITY, "unknown language"),
            Self::LanguageMissing => {
                ("language_missing", StatusCode::UNPROCESSABLE_ENTITY, "the language is not installed on this server")
            }
            Self::BodyTooLarge => ("body_too_large", StatusCode::PAYLOAD_TOO_LARGE, "request body too large"),
            Self::TooManyEntries => (
                "too_many_entries",
                StatusCode::PAYLOAD_TOO_LARGE,
                "the body has too many entries, or nests them too deeply",
            ),
            Self::RequestTimeout => ("request_timeout", StatusCode::REQUEST_TIMEOUT, "the request arrived too slowly"),
            Self::Unauthorized => ("unauthorized", StatusCode::UNAUTHORIZED, "API key required"),
            Self::Forbidden => ("forbidden", StatusCode::FORBIDDEN, "insufficient scope"),
            Self::InvalidHost => ("invalid_host", StatusCode::BAD_REQUEST, "the request must name exactly one host"),
            Self::ForbiddenHost => ("forbidden_host", StatusCode::FORBIDDEN, "host not allowed"),
            Self::ForbiddenOrigin => ("forbidden_origin", StatusCode::FORBIDDEN, "origin not allowed"),
            Self::NotFound => ("not_found", StatusCode::NOT_FOUND, "not found"),
            Self::MethodNotAllowed => ("method_not_allowed", StatusCode::METHOD_NOT_ALLOWED, "method not allowed"),
            Self::UnsupportedMediaType => {
                ("unsupported_media_type", StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
            }
            Self::AtCapacity => ("at_capacity", StatusCode::TOO_MANY_REQUESTS, "at capacity"),
            Self::QueueFull => ("queue_full", StatusCode::TOO_MANY_REQUESTS, "job queue full"),
            Self::StorageFull => {
                ("storage_full", StatusCode::TOO_MANY_REQUESTS, "job storage of the API key exhausted")
            }
            Self::DiskFull => ("disk_full", StatusCode::INSUFFICIENT_STORAGE, "the disk of the server is full"),
            Self::StoreUnavailable => {
                ("store_unavailable", StatusCode::SERVICE_UNAVAILABLE, "the job store is unavailable")
            }
            Self::IdempotencyConflict => {
                ("idempotency_conflict", StatusCode::CONFLICT, "idempotency key used for another request")
            }
            Self::TooManyRequests => ("too_many_requests", StatusCode::TOO_MANY_REQUESTS, "rate limit exceeded"),
            Self::QuotaExceeded => {
                ("quota_exceeded", StatusCode::TOO_MANY_REQUESTS, "daily quota of the API key exhausted")
            }
            Self::Draining => ("draining", StatusCode::SERVICE_UNAVAILABLE, "the server takes no more work"),
            Self::Unavailable => ("unavailable", StatusCode::SERVICE_UNAVAILABLE, "temporarily unavailable"),
            Self::ShuttingDown => ("shutting_down", StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down"),
            Self::Internal => ("internal_error", StatusCode::INTERNAL_SERVER_ERROR, "internal error"),
        }
    }
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
            Refused::Request(_) => Self::new(Code::InvalidRequest, detail),
            Refused::Failure(failure) if failure.request => Self::new(Code::InvalidRequest, detail),
            Refused::Failure(failure) if failure.keeper_ended => Self::new(Code::Internal, detail).retry_after(1),
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
