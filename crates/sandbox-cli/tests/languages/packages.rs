//! Package environments: installed once, in cells that can reach only the index, completely or not at all.

use std::io::Read;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sandbox_testing::command::{as_ordinary_user, processes, result, sandbox};
use sandbox_testing::package_index::{TestIndex, entries};
use sandbox_testing::{eventually, needs};
use serde_json::Value;

/// The tests here.
pub(crate) const TESTS: &[(&str, fn())] = &[
    ("an_installed_environment_needs_no_index", an_installed_environment_needs_no_index),
    ("concurrent_runs_install_once", concurrent_runs_install_once),
    ("a_killed_installation_leaves_nothing", a_killed_installation_leaves_nothing),
    ("an_interrupted_installation_leaves_nothing", an_interrupted_installation_leaves_nothing),
    ("failed_installations_leave_nothing", failed_installations_leave_nothing),
    ("a_hostile_build_is_confined_to_its_cell", a_hostile_build_is_confined_to_its_cell),
    ("a_build_script_does_not_see_the_password_of_the_index", a_build_script_does_not_see_the_password_of_the_index),
    ("an_index_with_a_password_is_reached_over_tls", an_index_with_a_password_is_reached_over_tls),
    ("a_url_with_ambiguous_credentials_is_refused", a_url_with_ambiguous_credentials_is_refused),
    ("installing_packages_gives_the_run_no_network", installing_packages_gives_the_run_no_network),
    ("the_cache_is_listed_and_pruned", the_cache_is_listed_and_pruned),
    ("a_manifest_and_flags_can_be_combined", a_manifest_and_flags_can_be_combined),
    ("an_ordinary_user_can_compile_and_install", an_ordinary_user_can_compile_and_install),
];

fn command(index: &TestIndex, data: &Path, args: &[&str]) -> Command {
    let mut command = sandbox(&["--lang", "python", "--json", "--timeout", "20s"]);
    command.args(args).env("SANDBOX_DATA_DIR", data).env("SANDBOX_PYTHON_INDEX", index.address());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(index: &TestIndex, data: &Path, args: &[&str]) -> Value {
    result(&command(index, data, args).output().unwrap())
}

const USE: [&str; 4] = ["--package", "demo", "--code", "import demo; demo.value"];

fn index_with_demo() -> TestIndex {
    let index = TestIndex::start();
    index.offer("demo", "");
    index
}

fn an_installed_environment_needs_no_index() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let first = run(&index, data.path(), &USE);
    assert_eq!((&first["verdict"], &first["result"]), (&"ok".into(), &"42".into()), "{first:#}");
    assert!(first["metrics"]["phases"]["packages"].as_f64().unwrap() > 0.0);
    let downloads = index.downloads();
    assert!(downloads > 0);
    index.stall(true);
    let second = run(&index, data.path(), &USE);
    assert_eq!((&second["result"], index.downloads()), (&"42".into(), downloads), "{second:#}");
}

fn concurrent_runs_install_once() {
    let data = tempfile::tempdir().unwrap();
    // How often one installation requests an archive is up to the installer.
    let alone = index_with_demo();
    run(&alone, tempfile::tempdir().unwrap().path(), &USE);
    let index = index_with_demo();
    index.stall(true);
    let mut runs: Vec<Child> = (0..3).map(|_| command(&index, data.path(), &USE).spawn().unwrap()).collect();
    eventually("the archive is requested", || index.downloads() > 0);
    std::thread::sleep(std::time::Duration::from_millis(300));
    index.stall(false);
    for run in runs.drain(..) {
        let result = result(&run.wait_with_output().unwrap());
        assert_eq!(result["result"], "42", "{result:#}");
    }
    assert_eq!(index.downloads(), alone.downloads());
}

fn wait_for_install(index: &TestIndex, data: &Path) -> Child {
    index.stall(true);
    let mut child = command(index, data, &USE);
    // Killed during a coverage measurement, it would leave an incomplete profile.
    let child = child.env("LLVM_PROFILE_FILE", "/dev/null").spawn().unwrap();
    eventually("the archive is requested", || index.downloads() > 0);
    child
}

fn a_killed_installation_leaves_nothing() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let mut child = wait_for_install(&index, data.path());
    let own = child.id();
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("its cells are gone", || {
        !processes().iter().any(|(_, parent, name, line)| {
            *parent == own || ((name.starts_with("sandbox-") || name == "uv") && line.contains(&index.address()))
        })
    });
    index.stall(false);
    let listed = sandbox(&["cache", "list", "--json"]).env("SANDBOX_DATA_DIR", data.path()).output().unwrap();
    assert_eq!(result(&listed), Value::Array(vec![]), "nothing incomplete is listed");
    let again = run(&index, data.path(), &USE);
    assert_eq!(again["result"], "42", "{again:#}");
    let left = entries(&data.path().join("environments"));
    assert!(!left.iter().any(|name| name.contains(".tmp")), "{left:?}");
}

fn an_interrupted_installation_leaves_nothing() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let child = wait_for_install(&index, data.path());
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert_eq!(result(&output)["verdict"], "cancelled");
    assert_eq!(entries(&data.path().join("environments")), Vec::<String>::new());
}

fn failed_installations_leave_nothing() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let left = || entries(&data.path().join("environments"));
    let unknown = run(&index, data.path(), &["--package", "nothing", "--code", "1"]);
    assert_eq!(unknown["verdict"], "package_error", "{unknown:#}");
    assert!(unknown["error"].as_str().unwrap().contains("nothing was not found"), "{unknown:#}");
    assert_eq!(left(), Vec::<String>::new());

    index.offer("large", "files['large.bin'] = os.urandom(3_000_000)");
    let mut large = command(&index, data.path(), &["--package", "large", "--code", "1"]);
    let large = result(&large.env("SANDBOX_INSTALL_DISK", "2m").output().unwrap());
    assert_eq!(large["verdict"], "package_error", "{large:#}");
    assert_eq!(left(), Vec::<String>::new());

    index.stall(true);
    let args = ["--install-timeout", "1s", "--package", "demo", "--code", "1"];
    let slow = run(&index, data.path(), &args);
    assert_eq!((&slow["verdict"], &slow["limit"]["kind"]), (&"package_error".into(), &"wall_time".into()), "{slow:#}");
    assert_eq!(slow["error"], "installing: time limit of 1s reached");
    assert_eq!(slow["hint"], "raise the time limit for installing with --install-timeout");
    assert_eq!(left(), Vec::<String>::new());
}

fn a_hostile_build_is_confined_to_its_cell() {
    let data = tempfile::tempdir().unwrap();
    let host = tempfile::tempdir().unwrap();
    let canary = TcpListener::bind("127.0.0.1:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let port = canary.local_addr().unwrap().port();
    let index = TestIndex::start();
    let attack = format!(
        r#"
tried = []
def attempt(name, action):
    try:
        tried.append(name + ": " + str(action()))
    except Exception as error:
        tried.append(name + ": refused")
def through_proxy():
    proxy = socket.create_connection(("127.0.0.1", 3128), 5)
    proxy.sendall(b"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")
    return proxy.recv(100).split(b" ")[1].decode()
attempt("write to the host", lambda: open("{host}/owned", "w").write("x"))
attempt("write to the toolchain", lambda: open(sys.base_prefix + "/owned", "w").write("x"))
attempt("read secrets", lambda: open("/etc/shadow").read())
attempt("reach the host", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
attempt("reach the host through the proxy", through_proxy)
attempt("see the host's processes", lambda: max(int(p) for p in os.listdir("/proc") if p.isdigit()) > 1000)
attempt("plant a link", lambda: os.symlink("/etc/passwd", os.environ["OUT"] + "/passwd"))
files["evil.py"] = "tried = " + repr(tried)
"#,
        host = host.path().display()
    );
    index.offer("evil", &attack);
    let code = "import evil, os; print('\\n'.join(evil.tried), os.path.lexists('/opt/packages/passwd'))";
    let result = run(&index, data.path(), &["--package", "evil", "--code", code]);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    let tried = result["stdout"].as_str().unwrap();
    for refused in ["write to the host", "write to the toolchain", "read secrets", "reach the host"] {
        assert!(tried.contains(&format!("{refused}: refused")), "{tried}");
    }
    assert!(tried.contains("through the proxy: 403") && tried.contains("processes: False"), "{tried}");
    assert!(tried.ends_with("False\n"), "links are not collected: {tried}");
    assert_eq!(entries(host.path()), Vec::<String>::new());
    assert!(canary.accept().is_err(), "a connection came through");
}

const USER: &str = "operator";
const PASSWORD: &str = "p%40ss-0123456789";
const DECODED: &str = "p@ss-0123456789";

/// Where a build script looks for the password: in everything that it can read, and in all answers of the proxy.
const SEARCH: &str = r#"
import glob, subprocess
seen = [repr(os.environ)]
def look(what, action):
    try:
        seen.append(what + ": " + repr(action()))
    except Exception as error:
        seen.append(what + ": " + repr(error))
def ask(head):
    with socket.create_connection(("127.0.0.1", 3128), 10) as proxy:
        proxy.sendall(head.encode())
        return proxy.makefile("rb").read()
for pattern in ("/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/maps", "/proc/net/*"):
    for path in glob.glob(pattern):
        look(path, lambda: open(path, "rb").read())
for top in ("/tmp", "/sandbox", "/build", "/run", "/root", "/home", "/etc", "/dev/shm"):
    for place, _, names in os.walk(top):
        for name in names:
            path = os.path.join(place, name)
            look(path, lambda: os.path.isfile(path) and open(path, "rb").read(1 << 20))
index = "index-1.sandbox.internal"
for path in ("/simple/", "/simple/evil/", "/nothing", "/simple/../x", "/%2e%2e/"):
    look(path, lambda: ask(f"GET http://{index}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
look("trace", lambda: ask(f"TRACE http://{index}/simple/ HTTP/1.1\r\nHost: x\r\n\r\n"))
look("post", lambda: ask(f"POST http://{index}/simple/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n"))
look("tunnel", lambda: ask(f"CONNECT {index}:443 HTTP/1.1\r\n\r\n"))
look("beside", lambda: ask("GET http://127.0.0.1:PORT/simple/evil/ HTTP/1.1\r\nHost: x\r\n\r\n"))
look("configured", lambda: subprocess.run(["uv", "pip", "config", "list"], capture_output=True))
files["seen.txt"] = "\n".join(seen)
"#;

/// Installs a package whose build looks for the password, and returns what it found.
fn search(index: &TestIndex, address: &str, authority: Option<&Path>) -> Value {
    let data = tempfile::tempdir().unwrap();
    index.offer("evil", &SEARCH.replace("PORT", &index.port().to_string()));
    let code = "import sys\nseen = open('/opt/packages/seen.txt').read()\nprint('index-1.sandbox.internal' in seen)\n\
                print([word for word in sys.argv[1:] if word in seen])\nprint([line for line in seen.splitlines() if line.startswith('beside')])";
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("{USER}:{DECODED}"));
    let args = ["--package", "evil", "--code", code, "--", PASSWORD, DECODED, &encoded, &encoded[..12]];
    let mut command = command(index, data.path(), &args);
    command.env("SANDBOX_PYTHON_INDEX", address);
    if let Some(authority) = authority {
        command.env("SSL_CERT_FILE", authority);
    }
    result(&command.output().unwrap())
}

fn a_build_script_does_not_see_the_password_of_the_index() {
    let index = TestIndex::start();
    let port = index.port();
    index.lock(USER, DECODED, &format!("http://127.0.0.1:{port}"));
    let result = search(&index, &format!("http://{USER}:{PASSWORD}@127.0.0.1:{port}/simple/"), None);
    assert_eq!(result["verdict"], "ok", "{result:#}");
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!(lines[..2], ["True", "[]"], "{result:#}");
    assert!(lines[2].contains("401 Unauthorized"), "only the gateway knows the password: {result:#}");
    assert_eq!(index.refused(), 1, "the installer was authorized each time");
}

/// A TLS terminator that forwards to another port.
const TLS: &str = r#"
import socket, ssl, sys, threading
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
def copy(source, target):
    try:
        while data := source.recv(65536): target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError: pass
def serve(client):
    try: client = context.wrap_socket(client, server_side=True)
    except OSError: return
    server = socket.create_connection(("127.0.0.1", int(sys.argv[3])))
    threading.Thread(target=copy, args=(client, server), daemon=True).start()
    copy(server, client)
    client.close()
threading.Thread(target=lambda: (sys.stdin.read(), __import__("os")._exit(0)), daemon=True).start()
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"#;

fn an_index_with_a_password_is_reached_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("certificate.pem"), dir.path().join("key.pem"));
    let mut make = Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1"]);
    make.args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]);
    make.args(["-addext", "basicConstraints=critical,CA:FALSE"]).arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    assert!(make.stderr(Stdio::null()).status().unwrap().success());
    let index = TestIndex::start();
    let mut front = Command::new("python3");
    front.args(["-c", TLS]).arg(&certificate).arg(&key).arg(index.port().to_string());
    // It ends with this test, because it waits for the end of its input.
    let mut front = front.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(front.stdout.take().unwrap()), &mut port).unwrap();
    let port = port.trim();
    index.lock(USER, DECODED, &format!("https://localhost:{port}"));
    let address = format!("https://{USER}:{PASSWORD}@localhost:{port}/simple/");
    let result = search(&index, &address, Some(&certificate));
    let lines: Vec<&str> = result["stdout"].as_str().unwrap().lines().collect();
    assert_eq!((&result["verdict"], lines.get(..2)), (&"ok".into(), Some(&["True", "[]"][..])), "{result:#}");
    // A server without a trusted certificate does not get the password.
    let refused = index.refused();
    let stranger = search(&index, &address, None);
    assert_eq!((&stranger["verdict"], index.refused()), (&"package_error".into(), refused), "{stranger:#}");
    drop(front.stdin.take());
    front.wait().unwrap();
}

fn a_url_with_ambiguous_credentials_is_refused() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let mut command = command(&index, data.path(), &USE);
    command.env("SANDBOX_PYTHON_INDEX", format!("http://operator:se/cret@127.0.0.1:{}/simple/", index.port()));
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        text.contains("SANDBOX_PYTHON_INDEX: cannot separate the credentials") && !text.contains("cret@"),
        "{text}"
    );
}

fn installing_packages_gives_the_run_no_network() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    let code = "
import demo, os, socket
print('https_proxy' in os.environ)
socket.create_connection(('127.0.0.1', 3128), 2)
";
    let result = run(&index, data.path(), &["--package", "demo", "--code", code]);
    assert_eq!(result["stdout"], "False\n");
    assert_eq!(result["verdict"], "runtime_error", "{result:#}");
}

fn the_cache_is_listed_and_pruned() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    run(&index, data.path(), &USE);
    let cache = |args: &[&str]| {
        let mut words = vec!["cache"];
        words.extend_from_slice(args);
        let output = sandbox(&words).env("SANDBOX_DATA_DIR", data.path()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let list: Value = serde_json::from_str(&cache(&["list", "--json"])).unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert!(list[0]["label"].as_str().unwrap().ends_with(": demo"), "{list:#}");
    assert!(list[0]["size"].as_u64().unwrap() > 100);
    assert!(cache(&[]).contains("1 entry"));
    assert!(cache(&["prune", "--unused-for", "1h"]).starts_with("removed 0 entries"));

    // An environment in use is not removed.
    let code = "import demo, sys; print('ready', flush=True); sys.stdin.readline(); import demo as again";
    let mut args = USE.to_vec();
    args[3] = code;
    args.extend(["--stdin", "-", "--format", "text"]);
    let mut running = sandbox(&["--lang", "python", "--timeout", "20s"]);
    running.args(&args).env("SANDBOX_DATA_DIR", data.path()).env("SANDBOX_PYTHON_INDEX", index.address());
    let mut running = running.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut first = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(cache(&["prune"]).contains("kept 1 in use"));
    drop(running.stdin.take());
    assert!(running.wait().unwrap().success());

    assert!(cache(&["prune"]).starts_with("removed 1 entry"));
    assert_eq!(entries(&data.path().join("environments")), Vec::<String>::new());
}

fn a_manifest_and_flags_can_be_combined() {
    let data = tempfile::tempdir().unwrap();
    let index = index_with_demo();
    index.offer("other", "files['other.py'] = 'value = 7'");
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("requirements.txt"), "demo\n").unwrap();
    std::fs::write(project.path().join("main.py"), "import demo, other\nprint(demo.value + other.value)\n").unwrap();
    let result = run(&index, data.path(), &["--file", project.path().to_str().unwrap(), "--package", "other"]);
    assert_eq!((&result["verdict"], &result["stdout"]), (&"ok".into(), &"49\n".into()), "{result:#}");
}

fn an_ordinary_user_can_compile_and_install() {
    use std::os::unix::fs::PermissionsExt;
    if !needs::root() {
        return;
    }
    // A directory of the user, with the tool where users have it.
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let bin = home.path().join(".local/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let found = Command::new("sh").args(["-c", "readlink -f \"$(command -v uv)\""]).output().unwrap();
    std::fs::copy(String::from_utf8(found.stdout).unwrap().trim(), bin.join("uv")).unwrap();
    let index = index_with_demo();
    let run = |args: &[&str]| {
        let mut command = as_ordinary_user(args);
        command.env("HOME", home.path()).env("SANDBOX_PYTHON_INDEX", index.address());
        result(&command.output().unwrap())
    };
    let compiled = run(&["--lang", "c", "--json", "--code", "int main(void) { return 7; }"]);
    assert_eq!((&compiled["compile"]["success"], &compiled["exit_code"]), (&true.into(), &7.into()), "{compiled:#}");
    let mut args = vec!["--lang", "python", "--json"];
    args.extend(USE);
    let installed = run(&args);
    assert_eq!(installed["result"], "42", "{installed:#}");
    assert_eq!(run(&args)["result"], "42");
}
