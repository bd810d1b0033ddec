//! The form of an answer that a client can have as a stream of events or as one JSON document.

use axum::extract::Query;
use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderMap, header};
use serde::Deserialize;

use crate::problem::{Code, Problem};

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerForm {
    /// Server-sent events, as they happen.
    Stream,
    /// One JSON document.
    Json,
}

/// The parameter with which a client chooses the form.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct FormOptions {
    stream: Option<bool>,
}

impl AnswerForm {
    /// The form that a client has asked for: by the parameter `stream`, or by `Accept`.
    pub(crate) fn of(
        options: Result<Query<FormOptions>, QueryRejection>,
        headers: &HeaderMap,
        default: Self,
    ) -> Result<Self, Problem> {
        let Query(options) = options.map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()))?;
        Ok(Self::choose(options.stream, headers, default))
    }

    /// The same with a parameter that has been read.
    pub(crate) fn choose(stream: Option<bool>, headers: &HeaderMap, default: Self) -> Self {
        let accepts = |kind: &str| {
            let mut given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
            given.any(|value| value.contains(kind))
        };
        match stream {
            Some(true) => Self::Stream,
            Some(false) => Self::Json,
            None if accepts("text/event-stream") => Self::Stream,
            None if accepts("application/json") => Self::Json,
            None => default,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameter_counts_before_the_header_and_both_before_the_default() {
        let accept = |value: &'static str| HeaderMap::from_iter([(header::ACCEPT, value.parse().expect("a value"))]);
        for (stream, value, expected) in [
            (None, "*/*", AnswerForm::Stream),
            (None, "application/json, text/plain, */*", AnswerForm::Json),
            (None, "application/json, text/event-stream", AnswerForm::Stream),
            (Some(false), "text/event-stream", AnswerForm::Json),
            (Some(true), "application/json", AnswerForm::Stream),
        ] {
            assert_eq!(AnswerForm::choose(stream, &accept(value), AnswerForm::Stream), expected, "{stream:?} {value}");
        }
        assert_eq!(AnswerForm::choose(None, &HeaderMap::new(), AnswerForm::Json), AnswerForm::Json);
    }
}
