//! Hints over HTTP name the fields of a request, on every route, and the operator's variables where a request has no say.

use serde_json::{Value, json};

use crate::Server;
use crate::answers::on_every_route;

fn hint(server: &Server, request: &Value) -> Value {
    let (status, answer) = server.post(request);
    assert_eq!(status, 200, "{answer:#}");
    answer["hint"].clone()
}

#[test]
fn hints_name_the_fields_of_a_request() {
    let server = Server::start_with(&[], &[("SANDBOX_MAX_TIMEOUT", "30s")]);
    let request = json!({"code": "import cv2", "timeout": 20});
    for (route, result) in on_every_route(&server, &request) {
        let hint = r#"install the missing package with "packages": ["opencv-python"]"#;
        assert_eq!(result["hint"], hint, "{route}");
    }
    for (request, expected) in [
        (json!({"code": "print(1)"}), Value::Null),
        (json!({"code": "1 / 0"}), Value::Null),
        (json!({"code": "input()"}), r#"standard input is empty; set "stdin""#.into()),
        (json!({"code": "input()", "stdin": ""}), r#"standard input is empty; set "stdin""#.into()),
        (
            json!({"code": "import urllib.request; urllib.request.urlopen('http://example.com/')"}),
            r#"programs have no network by default; allow it with "network": {"mode": "allowlist", "hosts": ["example.com"]}"#
                .into(),
        ),
        (
            json!({"code": "while True: pass", "timeout": 0.5}),
            r#"raise the time limit, for example with "limits": {"timeout": "1s"}"#.into(),
        ),
        (
            json!({"code": "open('x', 'wb').write(bytes(3_000_000))", "limits": {"output_size": "2m"}}),
            r#"raise the output files limit, for example with "limits": {"output_size": "4m"}"#.into(),
        ),
    ] {
        assert_eq!(hint(&server, &request), expected, "{request}");
    }
}

#[test]
fn a_server_returns_files_of_the_size_that_its_operator_chose() {
    let files = |size: Value| json!({"code": "open('x', 'wb').write(bytes(3_000_000))", "limits": size});
    let server = Server::start_with(&[], &[("SANDBOX_OUTPUT_SIZE", "2m")]);
    let (status, refused) = server.post(&files(json!({"output_size": "4m"})));
    assert_eq!((status, &refused["field"]), (422, &"limits.output_size".into()), "{refused:#}");
    assert!(refused["detail"].as_str().unwrap().ends_with("(SANDBOX_MAX_OUTPUT_SIZE)"), "{refused:#}");
    let (status, result) = server.post(&files(json!({})));
    assert_eq!((status, &result["files_omitted_count"]), (200, &1.into()));
    assert_eq!(result["hint"], "the output files limit is at its maximum, which SANDBOX_MAX_OUTPUT_SIZE sets");
    let server = Server::start_with(&[], &[("SANDBOX_OUTPUT_SIZE", "2m"), ("SANDBOX_MAX_OUTPUT_SIZE", "8m")]);
    let (status, result) = server.post(&files(json!({"output_size": "4m"})));
    assert_eq!((status, &result["files"]["x"]["size"], &result["hint"]), (200, &3_000_000.into(), &Value::Null));
}
