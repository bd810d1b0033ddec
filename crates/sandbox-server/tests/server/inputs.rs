//! What requests bring: links, bytes, paths as people write them; and errors that name the field or the missing tool.

use sandbox_testing::features::LanguageDir;
use serde_json::json;

use crate::Server;

#[test]
fn links_are_made_in_the_sandbox_only() {
    let server = Server::start(&[]);
    let code = "import os\nprint(open('a/link').read(), os.readlink('a/link'), os.listdir('dir'))\nos.unlink('gone')";
    let files = json!({
        "data/x.txt": "text", "a/link": {"symlink": "../data/x.txt"}, "dir": {"symlink": "data"}, "gone": {"symlink": "no"}
    });
    let (_, answer) = server.post(&json!({"code": code, "files": files}));
    assert_eq!(answer["stdout"], "text ../data/x.txt ['x.txt']\n", "{answer:#}");
    assert_eq!((&answer["files"], &answer["files_omitted"]), (&json!({}), &json!(null)), "{answer:#}");
    // Through a link to a directory, another one may lead out of the working directory, but not out of the sandbox.
    let files = json!({"p/q/s": {"symlink": "../.."}, "t": {"symlink": "p/q/s/../etc/passwd"}});
    let request = json!({"code": "import os; print(open('t').read() == open('/etc/passwd').read(), len(open('/etc/passwd').read()) < 300)"});
    let mut request = request.clone();
    request["files"] = files;
    let (_, answer) = server.post(&request);
    assert_eq!(answer["stdout"], "True True\n", "the sandbox's own file: {answer:#}");
    // A compiler sees them too.
    let main = "#include \"own.h\"\nint main(void) { return N; }";
    let files = json!({"main.c": main, "own.h": {"symlink": "inc/real.h"}, "inc/real.h": "#define N 0\n"});
    let (_, answer) = server.post(&json!({"language": "c", "files": files}));
    assert_eq!(answer["verdict"], "ok", "{answer:#}");
    for (path, target, why) in [
        ("l", "/etc/passwd", "it is absolute"),
        ("l", "../../etc/passwd", "it leads out of the working directory"),
        ("a/l", "../../x", "it leads out of the working directory"),
    ] {
        let (status, problem) = server.post(&json!({"code": "1", "files": {path: {"symlink": target}}}));
        assert_eq!((status, &problem["field"]), (422, &format!("files.{path}").into()), "{problem:#}");
        assert!(problem["detail"].as_str().unwrap().contains(why), "{problem:#}");
    }
    let below = json!({"l": {"symlink": "d"}, "l/x": "1"});
    let (status, problem) = server.post(&json!({"code": "1", "files": below}));
    assert_eq!((status, &problem["detail"]), (422, &"'l' is both a file and a directory".into()));
    let manifest = json!({"requirements.txt": {"symlink": "r"}, "r": ""});
    let (status, problem) = server.post(&json!({"code": "1", "files": manifest}));
    assert_eq!((status, &problem["detail"]), (422, &"'requirements.txt' is a link; send the file itself".into()));
}

#[test]
fn standard_input_can_be_binary() {
    let server = Server::start(&[]);
    let code = "import sys; print(list(sys.stdin.buffer.read()))";
    let stdin = json!({"content": "/wAK", "encoding": "base64"});
    let (_, answer) = server.post(&json!({"code": code, "stdin": stdin}));
    assert_eq!(answer["stdout"], "[255, 0, 10]\n", "{answer:#}");
    let id = server.submit(&json!({"code": code, "stdin": stdin}));
    assert_eq!(server.job(&id, "?wait=30s")["result"]["stdout"], "[255, 0, 10]\n");
    let batch = json!({"request": {"code": code, "stdin": "a"}, "inputs": [{"stdin": stdin}]}).to_string();
    let (_, (status, text)) = server.send_to("/v1/batch", &[], batch.as_bytes());
    assert!(status == 200 && text.as_str().unwrap().contains("[255, 0, 10]"), "{text:#}");
    let (status, problem) = server.post(&json!({"code": "1", "stdin": {"content": "?", "encoding": "base64"}}));
    assert_eq!((status, &problem["field"]), (422, &"stdin".into()), "{problem:#}");
}

#[test]
fn paths_are_normalized_and_errors_name_the_field() {
    let server = Server::start(&[]);
    let files = json!({"folder/../main.py": "import b\nprint(b.x)", "./lib/.././b.py": "x = 5"});
    let (_, answer) = server.post(&json!({"files": files, "entry": "x/../main.py"}));
    assert_eq!(answer["stdout"], "5\n", "{answer:#}");
    let (status, problem) = server.post(&json!({"files": {"a.py": "1", "b.py": "2"}}));
    let detail = "ambiguous entry: the program could start in a.py, b.py; choose one as the entry";
    assert_eq!((status, &problem["detail"], &problem["field"]), (422, &detail.into(), &"entry".into()));
    let (_, problem) = server.post(&json!({"code": "1", "files": {"a/../../b": "1"}}));
    assert!(problem["detail"].as_str().unwrap().contains("climbs out of the working directory"), "{problem:#}");
}

#[test]
fn a_missing_tool_is_no_fault_of_the_request() {
    let dir = tempfile::tempdir().unwrap();
    let (fixture, own) = (LanguageDir::added().path().join("awk"), dir.path().join("awk"));
    std::fs::create_dir(&own).unwrap();
    std::fs::copy(fixture.join("harness.awk"), own.join("harness.awk")).unwrap();
    let packages = "[packages]\nexample = \"x\"\npattern = '^x$'\ntarget = \"/opt/packages\"\nscript = \"true\"\n\
                    [packages.tools.fetcher]\ncommands = [\"no-such-fetcher\"]\nmissing = \"install it from example.org\"\n";
    let definition = std::fs::read_to_string(fixture.join("language.toml")).unwrap();
    std::fs::write(own.join("language.toml"), format!("{definition}\n{packages}")).unwrap();
    let server = Server::start(&["--runtimes", dir.path().to_str().unwrap()]);
    let (_, answer) = server.post(&json!({"language": "awk", "code": "BEGIN { print 1 }"}));
    assert_eq!(answer["stdout"], "1\n", "{answer:#}");
    let (status, problem) =
        server.post(&json!({"language": "awk", "code": "BEGIN { print 1 }", "requirements": ["x"]}));
    assert_eq!((status, &problem["code"]), (503, &"tool_missing".into()), "{problem:#}");
    assert_eq!(problem["detail"], "'fetcher' was not found on this host; install it from example.org");
}
