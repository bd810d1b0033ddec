//! Cells of other backends.

use serde_json::json;

use crate::Server;

#[test]
fn another_backend_serves_the_same_requests() {
    // The server has given root up; its keeper has not.
    let server = Server::start(&["--backend", "oci"]);
    let (status, answer) = server.post(&json!({"code": "print(open('in').read())\n6*7", "files": {"in": "text"}}));
    assert_eq!((status, &answer["stdout"], &answer["result"]), (200, &json!("text\n"), &json!("42")), "{answer:#}");
    let (_, answer) = server.post(&json!({"code": "while True: pass", "timeout": "500ms"}));
    assert_eq!(answer["verdict"], "timeout", "{answer:#}");
    let (status, answer) = server.post(&json!({"code": "1", "network": "full"}));
    assert_eq!(status, 422, "{answer:#}");
}
