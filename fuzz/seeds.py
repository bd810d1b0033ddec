#!/usr/bin/env python3
"""Writes the corpus: a few small inputs for each fuzz target, most of them what the tests and the guide show."""

import gzip
import io
import json
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def text(value):
    value = value.encode()
    return varint(len(value)) + value


def some(value):
    return b"\x01" + value


NONE = b"\x00"


def entry(kind, *fields, content=b""):
    header = varint(kind) + b"".join(fields)
    return len(header).to_bytes(2, "little") + header + content


def file(path, content, executable=False):
    return entry(2, text(path), bytes([executable]), varint(len(content)), content=content)


def into(place):
    return entry(0, bytes([place]))


def directory(path):
    return entry(1, text(path))


def link(path, target):
    return entry(3, text(path), text(target))


def omitted(path, why=3):
    return entry(4, text(path), varint(why))


def end(number=0):
    return entry(5, varint(number))


def os_string(value):
    return b"\x00" + text(value)


def command(argv, env=()):
    words = varint(len(argv)) + b"".join(map(os_string, argv))
    pairs = varint(len(env)) + b"".join(os_string(a) + os_string(b) for a, b in env)
    return words + pairs + text("/sandbox")


def run(argv, env=(), collect=NONE):
    return command(argv, env) + b"\x01" + collect + b"\x01"


LIMITS = b"".join(
    NONE if value is None else some(varint(value))
    for value in [3_000_000, None, 256 << 20, 1000, 64, 64 << 20, 16384, 1 << 20, 256, 64 << 20]
)
SPEC = (
    varint(1) + text("/usr") + text("/opt/x") + b"\x00"
    + varint(1) + text("/data") + varint(1 << 20) + varint(100)
    + LIMITS + varint(0) + varint(0x7F)
)
DURATION = varint(1) + varint(500)
REPORT = varint(0) + varint(0) + DURATION * 3 + varint(1) * 4 + b"\x00\x01\x00" + varint(9) * 2
USAGE = DURATION * 4 + varint(1) * 5

WIRE = [
    varint(0) + SPEC,
    varint(1) + varint(1) + text("/srv") + varint(0),
    varint(0) + run(["sh", "-c", "true"], [("PATH", "/bin")], some(varint(10) + varint(1 << 20))),
    varint(1) + varint(0) + varint(2),
    varint(1) + varint(1),
    varint(2),
    varint(2) + run(["true"]),
    varint(0) + varint(0x7F) + DURATION,
    varint(1) + varint(0) + varint(2) + some(varint(0) + varint(0)) + varint(1) + varint(4) + varint(64) + USAGE,
    varint(2) + USAGE,
    varint(3) + text("cannot x") + text("no") + some(text("do y")) + b"\x01",
    varint(3) + REPORT,
    varint(4) + varint(2),
    varint(5) + text("start") + varint(4) + b"\x01",
]

ARCHIVE = [
    end(),
    file("a", b"abc") + end(),
    file("bin/tool", b"", True) + omitted("link") + end(7),
    into(1) + directory("d") + file("d/b", b"xy") + link("l", "d/b") + end(),
    into(2) + file("x", b"12345678") + end(),
    into(3) + file("x", b"") + end(),
    file("a", b"abc"),
    file("../a", b"abc") + end(),
    file("/etc/passwd", b"") + end(),
    file("a" * 300, b"") + end(),
    b"".join(file(name, b"0123456789abcdef") for name in "abcde") + end(),
    entry(2, text("a"), b"\x00", varint((1 << 64) - 1)) + end(),
    b"\xff\xff" + b"x" * 40,
]

ROUND_TRIP = [
    "file a=abc\nrun bin/tool=\n",
    "file a=1\nomit link\ninto 1\ndir d\nfile d/b=xy\nlink l=d/b\n",
    "into 2\nfile x=\ninto 0\nfile y=z\n",
    "into 1\nlink a=/etc/passwd\nlink b=../../x\n",
    "omit \nomit a\nomit b\n",
    "dir a\ndir a/b\n",
    "file ünïcode/文件=é\n",
    "nothing",
    "",
]

MINIMAL = """name = "lua"
extensions = ["lua"]
source = "main.lua"
[find]
commands = ["lua"]
describe = "echo version=5"
missing = "install it"
[run]
argv = ["{executable}", "{entry}"]
"""
DEFINITION = [
    MINIMAL,
    'like = "bash"\nname = "moon"\n[find]\ncommands = ["moon"]\n',
    'like = "none"',
    "like = 3",
    MINIMAL.replace("[run]", '[run]\nrunner = "runner.lua"'),
    MINIMAL.replace("[run]", '[errors]\nrun = ["(?m)^(.*)$"]\n[run]'),
    MINIMAL.replace("[run]", '[prepare]\nwhat = "x"\nscript = "x"\ntarget = "/a/b"\nstages = ["install"]\n[run]'),
    MINIMAL.replace("missing", 'system = ["/etc/ssl"]\nmissing'),
    MINIMAL.replace("missing", 'system = ["/etc/../root"]\nmissing'),
    MINIMAL.replace('"main.lua"', '"../main.lua"'),
    'like = "bash"\nname = "x"\n[run]\nrunner = "../../x"\n',
    'like = "bash"\nname = "x"\naliases = ["a+b"]\n[packages]\nexample = "x"\npattern = "^x$"\nscript = ""\ntarget = "/p"\n',
]

HOST = [
    "Example.COM.\n*.example.com",
    "api.example.com\napi.example.com:443",
    "evilexample.com\n*.example.com",
    "a.b.example.com\n*.Example.com.:80",
    "[::1]\n[::1]:80",
    "127.0.0.1\n127.0.0.1",
    "127.1\n*.com",
    "0x7f.1\n0x7f000001",
    "::ffff:10.0.0.1\n10.0.0.1",
    "64:ff9b::808:808\n*",
    "64:ff9b:1:a00:1:0:808:808\na:70000",
    "2002:7f00:1::\na:+1",
    "xn--bcher-kva.example\nhttp://a",
    "0123456789abcdef\na.*.b",
]

JSON = [
    {"code": "print(1)"},
    {"files": {"main.py": "1"}, "entry": "main.py"},
    {"code": "1", "timeout": 1.5},
    {"code": "1", "timeout_seconds": "1m30s", "limits": {"memory": "64m", "processes": 3, "cpus": 0.5}},
    {"code": "1", "network": {"mode": "localhost"}, "restricted": True},
    {"code": "1", "network": "proxy"},
    {"code": "1", "files": {"a": "x", "b": {"content": "/w==", "encoding": "base64", "size": 1, "executable": True}}},
    {"code": "1", "files": {"../a": "x"}},
    {"code": "1", "template": {"name": "harness", "variables": {"function": "f", "cases": [[1, 2.5e300]]}}},
    {"code": "1", "template": {"text": "{{ code }}"}, "language": "rust"},
    {"code": "1", "volumes": ["v:/data", "/srv:/x:rw"], "workdir": "x"},
    {"code": "1", "args": ["a"], "env": {"K": "V"}, "packages": ["six"], "stdin": "in"},
    {"code": "1", "webhook": {"url": "https://a.example", "secret": "0123456789abcdef"}},
    {"code": "1", "limits": {"open_files": "+5", "disk": 1e21, "no\nlimit": -1}},
]

LITERAL = [
    "a\"b\\c\n\u0001é\u2028$'", "\ufeff\u202e", "\u0000", "it's", None, True, -0.0, 1e300, 2**64 - 1, -(2**63),
    [1, 2.5], [[1, 2], [3]], [], {}, {"a": {"b": [None, "x"]}}, {"__proto__": 1}, ["a b", 1], {"k\u0000\u0007": "v"},
]

PATH = ["main.py", "src/main.rs", "a/b/c.txt", "...", "ünïcode/文件", ".hidden", "a b", "", "/etc/passwd", "../x",
        "a/../b", "a//b", "./a", "a/", "a\0b", "a/" * 40 + "x", "x" * 300, "a\\..\\b", "\x1b[31m"]

PROXY = [
    "CONNECT a.example:443 HTTP/1.1\r\n\r\n",
    "CONNECT [::1]:443 HTTP/1.1\r\nProxy-Authorization: x\r\n\r\n",
    "GET http://a.example:81/x?y HTTP/1.1\r\nHost: a\r\nProxy-Connection: x\r\n\r\n",
    "GET http://a.example?x/y HTTP/1.1\r\n\r\n",
    "GET http://user:secret@a.example/ HTTP/1.0\nhost : b\n\n",
    "POST http://a.example/#x HTTP/1.1\r\nX: a\rHost: b\r\n\r\nbody",
    "GET / HTTP/1.1\r\n\r\n",
    "GET https://a.example/ HTTP/1.1\r\n\r\n",
    "GET http://a.example/ HTTP/1.1 x\r\nConnection: keep-alive\r\n folded\r\n\r\n",
    " http://a.example/ HTTP/2\r\n\r\n",
    "CONNECT 127.1:80 HTTP/1.1\r\n\r\n",
    "https://user:secret@index.example/simple/,http://[::1]:8080|direct",
]

TEMPLATE = [
    "# {{ text }}\n{{ code }}\nprint({{ text | literal }})\n",
    "def f():\n    {{ code | indent(4) }}\n",
    "x = {{ code | literal }}",
    "x = {{ [code] | literal }}",
    "{% for x in list %}{{ x }},{% endfor %}",
    "{% if n > 2 %}{{ map | literal }}{% else %}{{ nothing }}{% endif %}",
    "{% macro m(a) %}{{ a | upper }}{% endmacro %}{{ m(text) }}",
    "{% set a = text ~ text %}{{ a | length }}{{ a | replace('q', code) }}",
    "{{ list | join('-') }}{# comment #}{{ map.a[0] }}",
    "{{ code }}{{ code }}{{ TEMPLATE_TOKEN }}",
    "{% if %}", "{{ code | nofilter }}", "{% raw %}{{ x }}{% endraw %}",
    '{"template":{"name":"t","text":"{{ code }}{{ v | literal }}","variables":{"v":[1,"x"]}},"language":"go","code":"x"}',
]

UNITS = ["3", "0.5", "500ms", "1m30s", "1.5s", "2h", "10us", "7µs", "1ns", "-1", "nan", "1e9", "1m30", "1..2",
         "99999999999999h", "1048576", "64k", "256MiB", "1.5g", "1 kb", "9000t", "0x10", "+5", "18446744073709551616"]

VOLUME = ["./x:/data", "/srv/x:/data:ro", "/srv/x:/data:rw", "db:/data", "db:/data:1m", "db", "db:data", "db:/data:rw",
          "db:/data:1", ".x:/data", "..:/x", "a:/b:c:d", "db:/a/../etc", "src", "a/b", "/data/../etc", "a\nb:/x"]

QUERY = b"\x07\x09\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
DNS = [
    QUERY + b"\x03api\x07example\x03com\x00\x00\x01\x00\x01",
    QUERY + b"\x03API\x07example\x03com\x00\x00\x1c\x00\x01",
    QUERY + b"\x00\x00\x01\x00\x01",
    QUERY + b"\x05evil\x00\x03com\x00\x00\x01\x00\x01",
    QUERY + b"\xc0\x0c\x00\x01\x00\x01",
    QUERY + b"\x3f" + b"a" * 63 + b"\x00\x00\x01\x00\x01",
    QUERY[:5] + b"\x02" + QUERY[6:] + b"\x01a\x00\x00\x01\x00\x01",
]

REPLY = b"\x00\x00\x81\x80\x00\x01\x00%c\x00\x00\x00\x00\x03www\x07example\x03com\x00\x00%c\x00\x01"
TTL = b"\x00\x01\x00\x00\x00\x1e"
DNS_REPLY = [
    REPLY % (1, 1) + b"\xc0\x0c\x00\x01" + TTL + b"\x00\x04\xc0\x00\x02\x01",
    REPLY % (1, 28) + b"\xc0\x0c\x00\x1c" + TTL + b"\x00\x10\x20\x01\x0d\xb8" + b"\x00" * 11 + b"\x01",
    REPLY % (2, 1) + b"\xc0\x0c\x00\x05" + TTL + b"\x00\x06\x03cdn\xc0\x10" + b"\x03cdn\xc0\x10\x00\x01" + TTL + b"\x00\x04\xc0\x00\x02\x07",
    REPLY % (1, 1) + b"\xc0\x21\x00\x01" + TTL + b"\x00\x04\xc0\x00\x02\x01",
    (REPLY % (1, 1)).replace(b"com\x00", b"com\xc0\x08") + b"\xc0\x0c\x00\x01" + TTL + b"\x00\x04\xc0\x00\x02\x01",
    (REPLY % (0, 1)).replace(b"\x81\x80", b"\x83\x80", 1),
    (REPLY % (0, 1)).replace(b"\x81\x80", b"\x81\x83", 1),
]

def layer(*entries):
    """A tar file: (name, type, link, content) each."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, kind, link, content in entries:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.size = kind, link, len(content)
            archive.addfile(info, io.BytesIO(content))
    # Without the padding to ten kilobytes: shorter inputs are tried faster.
    return file.getvalue().rstrip(b"\0") + bytes(1024)


FILE, DIRECTORY, SYMBOLIC, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
LAYER = [
    layer(("d", DIRECTORY, "", b""), ("d/f", FILE, "", b"text"), ("l", SYMBOLIC, "d", b""), ("l/g", FILE, "", b"x")),
    layer(("up", SYMBOLIC, "../..", b""), ("up/secret", FILE, "", b"x"), ("h", HARD, "up/secret", b"")),
    layer(("d/.wh.f", FILE, "", b""), ("d/.wh..wh..opq", FILE, "", b""), ("/abs", FILE, "", b"x")),
    layer(("manifest.json", FILE, "", b'[{"Config": "c", "Layers": []}]'), ("c", FILE, "", b'{"rootfs": {"diff_ids": []}}')),
    layer(("oci-layout", FILE, "", b"{}"), ("index.json", FILE, "", b'{"manifests": []}')),
    gzip.compress(layer(("f", FILE, "", b"text")), mtime=0),
]

INLINE_METADATA = [
    '# /// script\n# requires-python = ">=3.11,<4"\n# dependencies = ["requests<3", "rich"]\n# ///\n',
    "# /// script\n#\n# [tool.uv]\n# x = 1\n# ///\n# ///\nprint(1)\n",
    '# /// script\r\n# requires-python = "~=3.11.2, !=3.12.*, ===3.13rc1"\r\n# ///\r\n',
    "# /// script\n# dependencies = [\n",
    "# /// other\n# ///\n# /// script\n# ///\n\n# /// script\n# ///\n",
]

def zipped(*files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, mode, method, content in files:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, mode << 16
            archive.writestr(info, content, method)
    return out.getvalue()


PROJECT_ARCHIVE = [
    layer(("p/main.py", FILE, "", b"1"), ("p/lib/a.py", FILE, "", b"")),
    gzip.compress(layer(("./main.py", FILE, "", b"1"), ("../x", FILE, "", b"")), mtime=0),
    zipped(("p/", 0o40755, 0, ""), ("p/main.py", 0o100644, 8, "print(1)" * 9), ("p/run", 0o100755, 0, "x")),
    zipped(("link", 0o120777, 0, "/etc/passwd"), ("../x", 0o100644, 8, "")),
]

SEEDS = {
    "archive": ARCHIVE,
    "archive_round_trip": ROUND_TRIP,
    "definition": DEFINITION + [path.read_text() for path in sorted((ROOT / "languages").glob("[cb]*/language.toml"))],
    "dns": DNS,
    "dns_reply": DNS_REPLY,
    "host": HOST,
    "image_layer": LAYER,
    "inline_metadata": INLINE_METADATA,
    "json_request": [json.dumps(value) for value in JSON],
    "literal": [json.dumps(value) for value in LITERAL],
    "path": PATH,
    "project_archive": PROJECT_ARCHIVE,
    "proxy_head": PROXY,
    "template": TEMPLATE,
    "units": UNITS,
    "volume": VOLUME,
    "wire": WIRE,
}

for target, inputs in SEEDS.items():
    directory = HERE / "corpus" / target
    directory.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(inputs):
        content = content.encode() if isinstance(content, str) else content
        (directory / f"{number:02}").write_bytes(content)
