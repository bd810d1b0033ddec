//! The API as its documents describe it: the page, the examples on it, `OPTIONS` and `HEAD`, and JSON instead of streams.

use std::process::Command;

use sandbox_testing::{Gate, eventually, needs};
use serde_json::{Value, json};

use crate::Server;

const JSON: (&str, &str) = ("accept", "application/json");

impl Server {
    /// The status, the headers and the body of the answer to a request that curl sends.
    fn curl(&self, arguments: &[&str], target: &str) -> String {
        let url = format!("http://{}{target}", self.address);
        let output =
            Command::new("curl").args(["-sS", "-i", "--max-time", "60"]).args(arguments).arg(url).output().unwrap();
        String::from_utf8(output.stdout).unwrap().replace("\r\n", "\n")
    }

    fn get_json(&self, target: &str) -> Value {
        let answer = self.curl(&["-H", "Accept: application/json"], target);
        serde_json::from_str(answer.split_once("\n\n").unwrap().1).unwrap_or_else(|_| panic!("{answer}"))
    }

    fn batch(&self, request: &Value, inputs: &Value) -> Vec<Value> {
        let body = json!({"request": request, "inputs": inputs}).to_string();
        let (headers, (status, answer)) = self.send_to("/v1/batch", &[JSON], body.as_bytes());
        assert_eq!((status, &headers["content-type"]), (200, &"application/json".parse().unwrap()), "{answer:#}");
        answer.as_array().unwrap().clone()
    }
}

#[test]
fn the_api_is_documented() {
    let server = Server::start(&[]);
    let (status, document) = server.get("/openapi.json");
    assert_eq!((status, &document["openapi"]), (200, &"3.1.0".into()), "{document:#}");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for schema in ["JsonRequest", "RunResult", "RunEvent", "Job", "Problem", "Verdict"] {
        assert!(schemas.contains_key(schema), "{schema}");
    }
    let page = server.curl(&[], "/docs");
    assert!(page.contains("id=at_capacity") && page.contains("style-src 'sha256-"), "{page}");
    assert!(!page.contains("unsafe-inline"), "{page}");
    let start = server.curl(&[], "/");
    assert!(start.starts_with("HTTP/1.1 307") && start.contains("\nlocation: /docs\n"), "{start}");
    assert!(server.get("/nowhere").1["detail"].as_str().unwrap().contains("/docs"));
    assert_eq!((server.get("/livez").0, server.get("/healthz").0), (200, 200));
}

#[test]
fn the_examples_on_the_page_work_in_a_shell() {
    if !needs::program("bash") || !needs::program("jq") {
        return;
    }
    let server = Server::start(&[]);
    let page = server.get("/docs").1.as_str().unwrap().to_owned();
    let blocks = page.split("<pre>").skip(1).map(|block| block.split_once("</pre>").unwrap().0);
    let unescape = |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let commands: Vec<String> = blocks.map(unescape).collect();
    // The job is created before it is asked for, and the server drained last.
    let order = |command: &String| match command {
        drain if drain.contains("/admin/drain") => 3,
        cancel if cancel.contains("DELETE") => 2,
        other => i32::from(other.contains("$ID")),
    };
    let mut sorted = commands.clone();
    sorted.sort_by_key(order);
    let function = "set -eu\ncurl() { command curl --fail-with-body -S \"$@\"; }\n";
    let script = function.to_owned() + &sorted.join("\n").replace("localhost:8080", &server.address);
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script}\n{out}\n{errors}");
    for part in
        [r#""stdout":"4\n""#, r#""result":"[ 1, 4, 9 ]""#, "a,b", "event: stdout", r#""stdout":"16\n""#, "hello"]
    {
        assert!(out.contains(part), "{part}\n{out}");
    }
    assert!(sorted.len() >= 16, "{sorted:#?}");
}

#[test]
fn every_route_answers_options_and_head() {
    let key = "a-key-of-sixteen-letters";
    let server = Server::start(&["--api-keys", key]);
    for (path, methods) in [
        ("/execute", "POST"),
        ("/v1/execute", "GET,HEAD,POST"),
        ("/v1/execute/x", "DELETE,GET,HEAD"),
        ("/health", "GET,HEAD"),
        ("/docs", "GET,HEAD"),
    ] {
        let answer = server.curl(&["-X", "OPTIONS"], path);
        let allow = answer.lines().find_map(|line| line.strip_prefix("allow: ")).unwrap_or_default();
        let mut allowed: Vec<&str> = allow.split(',').collect();
        allowed.sort_unstable();
        assert!(answer.starts_with("HTTP/1.1 204"), "{path}: {answer}");
        assert_eq!(allowed.join(","), methods, "{path}: {answer}");
    }
    assert!(server.curl(&["-X", "OPTIONS"], "/nowhere").starts_with("HTTP/1.1 404"));
    for path in ["/health", "/docs", "/openapi.json", "/livez"] {
        let answer = server.curl(&["--head"], path);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\n\n"), "{path}: {answer}");
    }
}

#[test]
fn a_batch_can_be_an_array_in_the_order_of_the_inputs() {
    let server = Server::start(&[]);
    let inputs: Value = (0..20).map(|number| json!({"stdin": number.to_string()})).collect();
    // The first of each four takes longest.
    let code = "import time; n = int(input()); time.sleep(0 if n % 4 else 0.3); print(n)";
    let items = server.batch(&json!({"code": code}), &inputs);
    for (index, item) in items.iter().enumerate() {
        assert_eq!(
            (&item["index"], &item["result"]["stdout"]),
            (&index.into(), &format!("{index}\n").into()),
            "{item:#}"
        );
    }
    assert_eq!(items.len(), 20);
    let body = json!({"request": {"code": "1"}, "inputs": [{}]}).to_string();
    let streamed = server.send_to("/v1/batch", &[], body.as_bytes()).1.1;
    assert!(streamed.as_str().is_some_and(|text| text.contains("event: end")), "without Accept it is a stream");
    let (_, (status, problem)) = server.send_to("/v1/batch?stream=perhaps", &[], body.as_bytes());
    assert_eq!((status, &problem["code"]), (422, &"invalid_request".into()));
}

#[test]
fn a_batch_that_does_not_compile_is_compiled_once() {
    if !needs::program("gcc") {
        return;
    }
    let server = Server::start(&[]);
    let inputs = json!([{}, {"stdin": "x"}, {"args": ["y"]}, {"files": {"z.h": ""}}, {}]);
    let items = server.batch(&json!({"language": "c", "code": "int main( {"}), &inputs);
    let seen: Vec<_> = items.iter().map(|item| item["result"]["compile"]["cached"].as_bool().unwrap()).collect();
    assert!(items.iter().all(|item| item["result"]["verdict"] == "compile_error"), "{items:#?}");
    assert_eq!(seen, [false, true, true, false, true], "files of an input may make its program compile");
    assert_eq!(server.get("/health").1["runs"], 2);
}

#[test]
fn the_events_of_a_job_can_be_pages() {
    let server = Server::start(&[]);
    let id = server.submit(&json!({"code": "print('one', flush=True); input()", "stdin": "x"}));
    eventually("the job has ended", || server.job(&id, "?wait=10s")["result"].is_object());
    let page = server.get_json(&format!("/v1/execute/{id}/events"));
    let events = page["events"].as_array().unwrap();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!((names.first(), names.last()), (Some(&"start"), Some(&"result")), "{page:#}");
    assert_eq!((&page["ended"], &page["next"]), (&true.into(), &events.last().unwrap()["id"]), "{page:#}");
    assert_eq!(events.last().unwrap()["data"]["result"]["stdout"], "one\n");
    let after = page["next"].as_u64().unwrap();
    let rest = server.get_json(&format!("/v1/execute/{id}/events?after={}", after - 1));
    assert_eq!((rest["events"].as_array().unwrap().len(), &rest["ended"]), (1, &true.into()), "{rest:#}");
    let none = server.get_json(&format!("/v1/execute/{id}/events?after={after}&wait=50s"));
    assert_eq!(none, json!({"events": [], "next": after, "ended": true}), "the end of a job is not waited for");
    let missing = server.get_json("/v1/execute/0/events?stream=false");
    assert_eq!(missing["code"], "not_found");
}

#[test]
fn a_page_of_events_is_waited_for() {
    let gate = Gate::closed();
    let server = Server::start_with(&["--capacity", "2"], &[gate.variable()]);
    let id = server.submit(&gate.request("print('after')"));
    eventually("it runs", || server.job(&id, "")["status"] == "running");
    let mut after = 0;
    eventually("it has started", || {
        after = server.get_json(&format!("/v1/execute/{id}/events?wait=5s"))["next"].as_u64().unwrap();
        after > 0
    });
    std::thread::scope(|scope| {
        let next = scope.spawn(|| server.get_json(&format!("/v1/execute/{id}/events?after={after}&wait=50s")));
        gate.open();
        let page = next.join().unwrap();
        assert!(!page["events"].as_array().unwrap().is_empty(), "{page:#}");
    });
}
