//! A request as JSON: limits stay within their bounds, files stay inside, and stored requests round-trip.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sandbox_base::RelativePath;
use sandbox_executor::{JsonRequest, Settings, VolumeRequest};
use sandbox_runtimes::{Definition, Registry};

static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);
static PYTHON: LazyLock<Definition> =
    LazyLock::new(|| Registry::shipped().expect("valid").by_name("python").expect("known").clone());

fuzz_target!(|bytes: &[u8]| {
    let Ok(json) = serde_json::from_slice::<JsonRequest>(bytes) else { return };
    let stored = serde_json::to_vec(&json).expect("a request can be stored");
    let again: JsonRequest = serde_json::from_slice(&stored).expect("and read again");
    assert_eq!(again, json);
    let request = match json.clone().into_request(&PYTHON, &SETTINGS) {
        Ok(request) => request,
        Err(error) => {
            assert!(!error.field.is_empty() && !error.why.is_empty());
            assert!(!error.to_string().contains(char::is_control), "{:?}", error.to_string());
            return;
        }
    };
    assert!(request.limits.is_valid());
    assert!(request.files.iter().all(|file| RelativePath::new(file.path.as_str()).is_ok()));
    assert!(request.files.len() == json.files.len() && request.args.len() == json.args.len());
    assert!(json.webhook.is_none(), "only jobs have one, and take it out");
    assert!(!request.volumes.iter().any(|volume| matches!(volume, VolumeRequest::Named { .. })), "not allowed here");
    if let Err(error) = request.check() {
        assert!(!error.to_string().is_empty());
    }
});
