//! The events of a run, in one form for server-sent events, `--format stream-json` and jobs.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::plan::Step;
use crate::result::{RunResult, seconds, text};
use crate::stage::Stream;

/// Receives what happens in a run, as it happens. Its methods should not block.
pub trait Observer {
    /// The run begins; the language and the version of its toolchain, if it is code in one.
    fn start(&mut self, language: Option<&str>, version: Option<&str>) {
        let _ = (language, version);
    }

    /// The steps are over, and the program is about to start.
    fn program(&mut self) {}

    /// The program has written this. Called in order for each stream.
    fn output(&mut self, stream: Stream, bytes: &[u8]);

    /// A step begins that the program has to wait for; `what` describes it for people. With `waiting`, the step is being
    /// done already, for another run or ahead of all, and this run waits for that.
    fn step(&mut self, step: Step, what: &str, waiting: bool) {
        let _ = (step, what, waiting);
    }

    /// The tool that prepares or installs has printed this line. It is not trusted, but has no control characters.
    fn step_status(&mut self, step: Step, line: &str) {
        let _ = (step, line);
    }

    /// The step is over.
    fn step_over(&mut self, step: Step) {
        let _ = step;
    }

    /// The run is over. What the next run will need is prepared when this returns, so a caller that waits is to be
    /// answered here.
    fn finish(&mut self, result: &Arc<RunResult>) {
        let _ = result;
    }
}

/// Ignores everything.
impl Observer for () {
    fn output(&mut self, _: Stream, _: &[u8]) {}
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum RunEvent {
    /// The run has started.
    Start {
        /// The language; none for a run of a command.
        language: Option<String>,
        /// The version of the toolchain.
        version: Option<String>,
    },
    /// A step before the program has started, such as a compilation.
    Step {
        /// The step.
        step: Step,
        /// A description for people.
        what: String,
        /// Whether the run waits for the same step of another run, or of the preparation at start.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waiting: bool,
    },
    /// The program has written to standard output.
    Stdout(OutputChunk),
    /// The program has written to standard error.
    Stderr(OutputChunk),
    /// The run is over.
    Result {
        /// The result of the run.
        #[cfg_attr(feature = "openapi", schema(value_type = RunResult))]
        result: Arc<RunResult>,
    },
    /// The run was cancelled before it started.
    Cancelled,
    /// An attempt of the job was interrupted: discard the output before this event. The job is run again, unless it was
    /// cancelled or has no attempts left.
    Restarted {
        /// The number of the attempt that follows.
        attempt: u32,
    },
    /// The job was not started before it expired.
    Expired,
    /// Output was recorded late, because the job store was slow or unavailable. No output is missing.
    Late {
        /// The delay of the output before this event, in seconds.
        seconds: f64,
    },
}

/// A chunk of the output of the program. It never ends within a character.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OutputChunk {
    /// The chunk as text.
    #[serde(default)]
    pub data: String,
    /// The exact bytes, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Seconds since the start of the run.
    #[serde(default)]
    pub time: f64,
}

impl RunEvent {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Step { .. } => "step",
            Self::Stdout(_) => "stdout",
            Self::Stderr(_) => "stderr",
            Self::Result { .. } => "result",
            Self::Cancelled => "cancelled",
            Self::Restarted { .. } => "restarted",
            Self::Expired => "expired",
            Self::Late { .. } => "late",
        }
    }

    /// About how many bytes it holds.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Stdout(chunk) | Self::Stderr(chunk) => {
                chunk.data.len() + chunk.data_base64.as_ref().map_or(0, String::len)
            }
            Self::Step { what, .. } => what.len(),
            Self::Result { result } => result.size(),
            Self::Start { .. } | Self::Cancelled | Self::Restarted { .. } | Self::Expired | Self::Late { .. } => 0,
        }
    }
}

/// Turns observations into events. Bytes that begin a character wait for the rest of it.
#[derive(Debug)]
pub struct EventEncoder {
    began: Instant,
    /// For each stream, the beginning of a character.
    unfinished: [Vec<u8>; 2],
}

impl Default for EventEncoder {
    /// An encoder for a run that begins now.
    fn default() -> Self {
        Self { began: Instant::now(), unfinished: Default::default() }
    }
}

impl EventEncoder {
    /// The event for [`Observer::start`].
    #[must_use]
    pub fn start(language: Option<&str>, version: Option<&str>) -> RunEvent {
        let [language, version] = [language, version].map(|text| text.map(str::to_owned));
        RunEvent::Start { language, version }
    }

    /// The event for [`Observer::step`].
    #[must_use]
    pub fn step(step: Step, what: &str, waiting: bool) -> RunEvent {
        RunEvent::Step { step, what: what.to_owned(), waiting }
    }

    /// The event for [`Observer::output`]; none if the bytes complete no character.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) -> Option<RunEvent> {
        let mut whole = std::mem::take(&mut self.unfinished[stream as usize]);
        whole.extend_from_slice(bytes);
        self.unfinished[stream as usize] = whole.split_off(whole.len() - unfinished_character(&whole));
        self.chunk(stream, whole)
    }

    /// The events for what still waits for the rest of its character, when the program has ended.
    pub fn finish(&mut self) -> impl Iterator<Item = RunEvent> + use<> {
        let events = [Stream::Stdout, Stream::Stderr].map(|stream| {
            let rest = std::mem::take(&mut self.unfinished[stream as usize]);
            self.chunk(stream, rest)
        });
        events.into_iter().flatten()
    }

    /// Forgets what waits for the rest of its character.
    pub fn forget(&mut self, stream: Stream) {
        self.unfinished[stream as usize].clear();
    }

    fn chunk(&self, stream: Stream, bytes: Vec<u8>) -> Option<RunEvent> {
        if bytes.is_empty() {
            return None;
        }
        let (data, data_base64) = text(bytes);
        let chunk = OutputChunk { data, data_base64, time: seconds(self.began.elapsed()) };
        Some(match stream {
            Stream::Stdout => RunEvent::Stdout(chunk),
            Stream::Stderr => RunEvent::Stderr(chunk),
        })
    }
}

/// The number of bytes at the end that begin an incomplete character.
fn unfinished_character(bytes: &[u8]) -> usize {
    let begins = |count: &usize| {
        let end = &bytes[bytes.len() - count..];
        std::str::from_utf8(end).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3.min(bytes.len())).find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of these pieces of standard output.
    fn events(pieces: &[&[u8]]) -> Vec<RunEvent> {
        let mut encoder = EventEncoder::default();
        let mut seen: Vec<_> = pieces.iter().filter_map(|piece| encoder.output(Stream::Stdout, piece)).collect();
        seen.extend(encoder.finish());
        seen
    }

    fn chunks(events: &[RunEvent]) -> Vec<(&str, Option<&str>)> {
        let chunk = |event| match event {
            &RunEvent::Stdout(OutputChunk { ref data, ref data_base64, .. }) => (data.as_str(), data_base64.as_deref()),
            _ => panic!("not a chunk of standard output"),
        };
        events.iter().map(chunk).collect()
    }

    #[test]
    fn chunks_never_end_within_a_character() {
        let text = "a€b😀".as_bytes();
        for cut in 0..=text.len() {
            let seen = events(&[&text[..cut], &text[cut..]]);
            let all: String = chunks(&seen).iter().map(|(data, _)| *data).collect();
            assert_eq!(all.as_bytes(), text, "cut at {cut}");
            assert!(chunks(&seen).iter().all(|(_, exact)| exact.is_none()), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(chunks(&events(&bytes)), [("a", None), ("€", None), ("b", None), ("😀", None)]);
    }

    #[test]
    fn bytes_that_are_not_text_come_as_base64_too() {
        assert_eq!(chunks(&events(&[b"a\xff"])), [("a\u{fffd}", Some("Yf8="))]);
        assert_eq!(chunks(&events(&[b"\xe2\x82"])), [("\u{fffd}", Some("4oI="))], "a character that never ends");
    }

    #[test]
    fn events_can_be_read_back() {
        let result = Arc::new(RunResult::internal_error("why".to_owned()));
        let chunk = OutputChunk { data: "x".to_owned(), data_base64: None, time: 0.25 };
        let all = [
            RunEvent::Start { language: Some("python".to_owned()), version: None },
            RunEvent::Step { step: Step::Compile, what: "compiling".to_owned(), waiting: false },
            RunEvent::Step { step: Step::Prepare, what: "preparing".to_owned(), waiting: true },
            RunEvent::Stdout(chunk.clone()),
            RunEvent::Stderr(chunk),
            RunEvent::Result { result },
            RunEvent::Cancelled,
            RunEvent::Restarted { attempt: 2 },
            RunEvent::Expired,
            RunEvent::Late { seconds: 1.5 },
        ];
        for event in all {
            let json = serde_json::to_value(&event).expect("JSON");
            assert_eq!(json["event"], event.name());
            assert_eq!(serde_json::from_value::<RunEvent>(json).expect("an event"), event);
        }
    }
}
