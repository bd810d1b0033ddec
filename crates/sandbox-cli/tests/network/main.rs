//! The reach of programs, in a test network of network namespaces with servers and a resolver: see `world.sh`.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue should stop")]

use std::process::Command;

use sandbox_testing::command::{binary, result, sandbox};
use sandbox_testing::needs;
use serde_json::Value;

/// A program to be run in the world.
#[derive(Default)]
struct Attempt<'a> {
    language: &'a str,
    flags: &'a [&'a str],
    /// The operator's variables.
    settings: &'a [(&'a str, &'a str)],
    /// The command that starts it, if it is not this user.
    wrapper: &'a [&'a str],
}

impl Attempt<'_> {
    /// The result; `None` if the world cannot be created.
    fn run(&self, code: &str) -> Option<Value> {
        if !needs::root() {
            return None;
        }
        let language = if self.language.is_empty() { "python" } else { self.language };
        let inner = sandbox(&[&["--lang", language, "--json", "-t", "20s", "--code", code], self.flags].concat());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/network/world.sh")).args(self.wrapper);
        command.arg(binary()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Some(result(&command.envs(self.settings.iter().copied()).output().unwrap()))
    }
}

/// Runs Python in the world.
fn python(code: &str, flags: &[&str]) -> Option<Value> {
    Attempt { flags, ..Attempt::default() }.run(code)
}

/// The outcome of each attempt, from a program that tries them all.
fn lines(result: &Value) -> Vec<String> {
    result["stdout"].as_str().unwrap().lines().map(str::to_owned).collect()
}

/// Python that tries addresses through the proxy, and over sockets without one.
const TRY: &str = r#"
import socket, urllib.request
def web(url):
    try:
        return urllib.request.urlopen(url, timeout=5).read().decode().strip()
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read().decode().strip()}"
    except Exception as error:
        return type(error).__name__
def direct(host, port, text=b"GET / HTTP/1.0\r\nHost: x\r\n\r\n"):
    try:
        with socket.create_connection((host, port), 5) as connection:
            connection.sendall(text)
            if not text.startswith(b"GET"):
                return connection.recv(1000).decode()
            return connection.makefile().read().strip().splitlines()[-1]
    except Exception as error:
        return type(error).__name__
def tunnel(target):
    with socket.create_connection(("127.0.0.1", 3128), 5) as connection:
        connection.sendall(b"CONNECT " + target + b" HTTP/1.1\r\n\r\n")
        return connection.recv(1000).decode(errors="replace").split("\r\n")[0]
"#;

#[test]
fn only_hosts_on_the_allow_list_are_reachable() {
    let code = format!(
        "{TRY}\n\
        print(direct('203.0.113.80', 80))\n\
        print(web('http://api.example.com/'))\n\
        print(web('http://evil.example.net/'))\n\
        print(direct('api.example.com', 80))\n\
        print(direct('evil.example.net', 80))\n\
        print(direct('203.0.113.81', 80))\n\
        print(web('http://www.example.com/'))\n\
        print(direct('api.example.com', 443, b'hello'))\n\
        print(direct('api.example.com', 5432, b'hello'))\n\
        print(web('http://api.example.com:8080/'))"
    );
    let Some(result) = python(&code, &["--allow-host", "api.example.com"]) else { return };
    let expected = [
        // Its address alone is refused until its name was resolved.
        "ConnectionResetError",
        "I am 203.0.113.80, you want api.example.com",
        "403 evil.example.net:80 is not among the hosts that are allowed",
        "I am 203.0.113.80, you want x",
        "gaierror",
        "ConnectionResetError",
        "403 www.example.com:80 is not among the hosts that are allowed",
        "HELLO",
        "ConnectionRefusedError",
        "403 api.example.com:8080 is not among the hosts that are allowed",
    ];
    assert_eq!(lines(&result), expected, "{result:#}");
    let network = &result["metrics"]["network"];
    // One name was looked up twice, for both kinds of addresses.
    assert_eq!((&network["connections"], &network["refused"]), (&3.into(), &7.into()), "{network:#}");
    assert_eq!(network["refusals"].as_array().unwrap().len(), 6, "{network:#}");
    let api: Vec<&Value> =
        network["hosts"].as_array().unwrap().iter().filter(|h| h["host"] == "api.example.com").collect();
    assert_eq!(api.len(), 2, "{network:#}");
    assert_eq!(
        (&api[1]["port"], &api[1]["sent"], &api[1]["received"]),
        (&443.into(), &5.into(), &5.into()),
        "{network:#}"
    );
    assert!(
        network["refusals"].as_array().unwrap().iter().any(|r| r["host"] == "evil.example.net" && r["port"].is_null())
    );
}

#[test]
fn rules_can_contain_ports_and_wildcards() {
    let code = format!(
        "{TRY}\n\
        print(web('http://api.example.com:8080/'))\n\
        print(direct('www.example.com', 8080))\n\
        print(direct('api.example.com', 5432, b'sql'))\n\
        print(web('http://api.example.com/'))\n\
        print(web('http://evil.example.net/'))"
    );
    let flags = ["--allow-host", "*.example.com:8080", "--allow-host", "api.example.com:5432"];
    let Some(result) = python(&code, &flags) else { return };
    let expected = [
        "I am 203.0.113.80, you want api.example.com:8080",
        "I am 203.0.113.80, you want x",
        "SQL",
        "403 api.example.com:80 is not among the hosts that are allowed",
        "403 evil.example.net:80 is not among the hosts that are allowed",
    ];
    assert_eq!(lines(&result), expected, "{result:#}");
}

#[test]
fn private_addresses_are_refused_whatever_is_allowed() {
    let names = ["internal", "self", "loopback", "metadata", "rebind"];
    let tries: String = names
        .iter()
        .map(|name| format!("print(web('http://{name}.example.com/'), direct('{name}.example.com', 80))\n"))
        .collect();
    let tries = format!(
        "{TRY}\nprint(web('http://rebind.example.com/'))\n{tries}\
        print(web('http://both.example.com/'))\n\
        print(web('http://api.example.com/redirect'))\n\
        print(direct('10.9.9.9', 80), direct('203.0.113.1', 80), direct('127.0.0.1', 80))"
    );
    let refused = |name: &str| format!("403 {name}.example.com: cannot be resolved to a public address gaierror");
    for flags in [&["--network", "full"][..], &["--allow-host", "*.example.com", "--allow-host", "10.9.9.9"][..]] {
        let Some(result) = python(&tries, flags) else { return };
        let lines = lines(&result);
        assert_eq!(lines[0], "I am 203.0.113.80, you want rebind.example.com", "{result:#}");
        for (name, line) in names.iter().zip(&lines[1..]) {
            assert_eq!(*line, refused(name), "{flags:?}: {result:#}");
        }
        assert_eq!(lines[6], "I am 203.0.113.80, you want both.example.com", "only its public address is used");
        assert_eq!(lines[7], "403 10.9.9.9: its address is not public");
        assert_eq!(lines[8], "ConnectionResetError ConnectionResetError ConnectionResetError");
    }
    // Only the operator can make exceptions, and only for requested hosts.
    let code =
        format!("{TRY}\nprint(direct('internal.example.com', 5432, b'sql'), web('http://internal.example.com/'))");
    let (flags, settings) =
        (["--allow-host", "*.example.com:5432"], [("SANDBOX_NETWORK_ALLOW", "internal.example.com")]);
    let attempt = Attempt { flags: &flags, settings: &settings, ..Attempt::default() };
    let Some(result) = attempt.run(&code) else { return };
    assert_eq!(
        lines(&result),
        ["SQL 403 internal.example.com:80 is not among the hosts that are allowed"],
        "{result:#}"
    );
}

#[test]
fn hosts_file_and_search_domains_are_honoured() {
    let code = format!("{TRY}\nprint(web('http://hosts.example.org/'))\nprint(web('http://evil/'))");
    let Some(result) = python(&code, &["--network", "full"]) else { return };
    let expected = ["I am 203.0.113.80, you want hosts.example.org", "I am 203.0.113.81, you want evil"];
    assert_eq!(lines(&result), expected, "{result:#}");
}

#[test]
fn refusals_do_not_reveal_which_names_exist() {
    let code = format!(
        "{TRY}\nimport time\n\
        for name in ['internal', 'metadata', 'nobody', 'there-is-none']:\n    \
            began = time.monotonic()\n    \
            print(web(f'http://{{name}}.example.com/').replace(name, 'NAME'), time.monotonic() - began >= 0.5)\n    \
            began = time.monotonic()\n    \
            print(direct(f'{{name}}.example.com', 80), time.monotonic() - began >= 0.5)"
    );
    let Some(result) = python(&code, &["--allow-host", "*.example.com"]) else { return };
    let lines = lines(&result);
    assert_eq!(lines[0], "403 NAME.example.com: cannot be resolved to a public address True", "{result:#}");
    assert_eq!(lines[1], "gaierror True", "{result:#}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(*line, lines[index % 2], "{result:#}");
    }
    let refusals = result["metrics"]["network"]["refusals"].as_array().unwrap();
    for refusal in refusals {
        let (host, why) = (refusal["host"].as_str().unwrap(), refusal["why"].as_str().unwrap());
        assert_eq!(why, format!("{host}: cannot be resolved to a public address"));
    }
    assert_eq!(refusals.len(), 4, "{result:#}");
}

#[test]
fn hosts_denied_by_the_operator_are_refused() {
    let code = format!(
        "{TRY}\n\
        print(web('http://api.example.com/'))\n\
        print(web('http://evil.example.net/'))\n\
        print(direct('203.0.113.81', 80), direct('evil.example.net', 80))"
    );
    let settings = [("SANDBOX_NETWORK_DENY", "203.0.113.81/32, www.example.com")];
    let attempt = Attempt { flags: &["--network", "full"], settings: &settings, ..Attempt::default() };
    let Some(result) = attempt.run(&code) else { return };
    let expected = [
        "I am 203.0.113.80, you want api.example.com",
        "403 evil.example.net: cannot be resolved to a public address",
        "ConnectionResetError gaierror",
    ];
    assert_eq!(lines(&result), expected, "{result:#}");
}

#[test]
fn disguised_names_are_refused() {
    let targets: [&str; 14] = [
        r"evil.example.net\x00.example.com:80",
        "evil.example.net#.example.com:80",
        "evil.example.net%00.example.com:80",
        "evilexample.com:80",
        "example.com.evil.example.net:80",
        "203.0.113.81:80",
        "3405803857:80",
        "0xcb007151:80",
        "0313.0.0161.0121:80",
        "[::ffff:203.0.113.81]:80",
        "user@api.example.com:80",
        "api.example.com:80@evil.example.net:80",
        "xn--exmple-cua.com:80",
        "api.example.com:080808",
    ];
    let tries: String = targets.iter().map(|target| format!("print(tunnel(b'{target}'))\n")).collect();
    let code = format!("{TRY}{tries}print(tunnel(b'API.example.COM.:80'))");
    let Some(result) = python(&code, &["--allow-host", "*.example.com"]) else { return };
    let lines = lines(&result);
    for (target, line) in targets.iter().zip(&lines) {
        assert!(line.starts_with("HTTP/1.1 40"), "{target}: {line}");
    }
    assert_eq!(lines[targets.len()], "HTTP/1.1 200 Connection established", "another spelling of an allowed name");
}

#[test]
fn allow_dns_permits_lookups_and_nothing_else() {
    let code = format!(
        "{TRY}\n\
        for name in ['evil.example.net', 'internal.example.com', 'nobody.example.org']:\n    \
            try: print(socket.gethostbyname(name))\n    \
            except Exception as error: print(type(error).__name__)\n\
        print(direct('203.0.113.81', 80))"
    );
    for (flags, expected) in [
        (&["--allow-dns"][..], ["203.0.113.81", "gaierror", "gaierror", "ConnectionRefusedError|OSError"]),
        (&["--network", "localhost", "--allow-dns"], ["203.0.113.81", "gaierror", "gaierror", "OSError"]),
        (&[], ["gaierror", "gaierror", "gaierror", "OSError"]),
    ] {
        let Some(result) = python(&code, flags) else { return };
        for (line, expected) in lines(&result).iter().zip(expected) {
            assert!(expected.split('|').any(|text| text == line), "{flags:?}: {line}, {result:#}");
        }
        assert_eq!(result["metrics"].get("network").is_some(), flags.contains(&"--allow-dns"));
    }
}

#[test]
fn programs_without_proxy_support_reach_the_web() {
    let code = "fetch('http://api.example.com/').then(r => r.text()).then(t => console.log(t.trim()))\
        .then(() => fetch('http://evil.example.net/')).catch(e => console.log(e.cause.code))";
    let flags = ["--allow-host", "api.example.com"];
    let attempt = Attempt { language: "javascript", flags: &flags, ..Attempt::default() };
    let Some(result) = attempt.run(code) else { return };
    assert_eq!(lines(&result), ["I am 203.0.113.80, you want api.example.com", "ENOTFOUND"], "{result:#}");
}

#[test]
fn an_ordinary_user_has_every_network_mode() {
    let code = format!(
        "{TRY}\nprint(web('http://api.example.com/'))\nprint(direct('api.example.com', 80))\nprint(web('http://evil.example.net/'))\n\
        print(direct('10.9.9.9', 80))"
    );
    let user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "HOME=/nonexistent"];
    let attempt = Attempt { flags: &["--allow-host", "api.example.com"], wrapper: &user, ..Attempt::default() };
    let Some(result) = attempt.run(&code) else { return };
    let expected = [
        "I am 203.0.113.80, you want api.example.com",
        "I am 203.0.113.80, you want x",
        "403 evil.example.net:80 is not among the hosts that are allowed",
        "ConnectionResetError",
    ];
    assert_eq!(lines(&result), expected, "{result:#}");
    assert!(!result["isolation"].as_array().unwrap().contains(&"memory".into()), "{result:#}");
}

#[test]
fn requests_beyond_the_operators_maximum_are_refused() {
    for (flags, why) in [
        (&["--network", "full"][..], "network mode 'full' exceeds the maximum 'localhost' (SANDBOX_MAX_NETWORK)"),
        (&["--allow-host", "a.example"], "network mode 'allowlist' exceeds the maximum"),
        (&["--allow-dns"], "DNS lookups exceed the maximum network mode"),
        (&["--network", "allowlist"], "requires at least one host"),
        (&["--network", "localhost", "--allow-host", "a.example"], "hosts require network mode allowlist"),
        (&["--allow-host", "http://a.example/"], "is not a host"),
        (&["--allow-host", "*.com"], "is not a host"),
    ] {
        let mut args = vec!["--lang", "python", "--code", "1"];
        args.extend_from_slice(flags);
        let mut command = sandbox(&args);
        if why.contains("maximum") {
            command.env("SANDBOX_MAX_NETWORK", "localhost");
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && text.contains(why), "{flags:?}: {text}");
    }
}
