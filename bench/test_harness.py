"""Tests of the harness: a wrong answer is never counted, and bars are evaluated correctly."""

import http.server
import json
import os
import tempfile
import threading
import unittest
import xml.dom.minidom

import bars
import machine
import report
from jobs import JobRequest
from measure import CODE, Command, Contender, Failed, Request, at_once, interleaved, once, percentile

SHELL = [["/bin/sh", "-c", CODE]]


class Commands(unittest.TestCase):
    def slot(self, steps=SHELL):
        null = os.open(os.devnull, os.O_WRONLY)
        self.addCleanup(os.close, null)
        return Command(steps, {"PATH": "/usr/bin:/bin"}, null)

    def test_a_right_answer_has_a_time(self):
        self.assertGreater(once(self.slot(), "echo hello", "hello\n"), 0)

    def test_a_wrong_answer_fails(self):
        with self.assertRaisesRegex(Failed, "printed 'hallo"):
            once(self.slot(), "echo hallo", "hello\n")

    def test_a_right_answer_with_a_wrong_end_fails(self):
        with self.assertRaisesRegex(Failed, "ended with 3"):
            once(self.slot(), "echo hello; exit 3", "hello\n")

    def test_the_first_of_two_steps_must_succeed(self):
        steps = [["/bin/false"], ["/bin/echo", "hello"]]
        with self.assertRaises(Failed):
            once(self.slot(steps), "", "hello\n")

    def test_only_the_last_step_is_the_answer(self):
        steps = [["/bin/echo", "compiling"], ["/bin/echo", "hello"]]
        once(self.slot(steps), "", "hello\n")

    def test_contenders_take_turns_and_slow_ones_fewer(self):
        programs = iter(lambda: ("echo hello", "hello\n"), None)
        times = interleaved([Contender("a", self.slot), Contender("b", self.slot, every=3)], programs, 6, warm_up=1)
        self.assertEqual({name: len(values) for name, values in times.items()}, {"a": 6, "b": 2})

    def test_many_at_once_do_all(self):
        programs = ((f"echo {number}", f"{number}\n") for number in range(100))
        times, _ = at_once(Contender("a", self.slot), programs, 4, 10)
        self.assertEqual(len(times), 10)

    def test_one_wrong_answer_of_many_fails(self):
        programs = ((f"echo {number}", "3\n") for number in range(100))
        with self.assertRaisesRegex(Failed, "2 at once: printed"):
            at_once(Contender("a", self.slot), programs, 2, 10)


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(500 if b"broken" in body else 202 if b'"id"' in body else 200)
                if b"pieces" in body:
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in (body[:5], body[5:]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                        self.wfile.flush()
                    self.wfile.write(b"0\r\n\r\n")
                else:
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def do_GET(self):
                printed = self.path.partition("?")[0].rpartition("/")[2]
                body = json.dumps({"result": {"stdout": printed} if printed != "endless" else None}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.server.server_close()

    def setUp(self):
        self.slot = Request(self.server.server_address, "/", lambda source: {"echo": source}, lambda body: body["echo"])
        self.addCleanup(self.slot.close)

    def test_answers_over_one_connection_with_a_length_and_in_pieces(self):
        for text in ("hello", "pieces", "hello again"):
            once(self.slot, text, text)

    def test_an_error_fails(self):
        with self.assertRaisesRegex(Failed, "the answer was 500"):
            once(self.slot, "broken", "broken")


    def test_a_job_has_a_time_when_its_result_is_there(self):
        slot = JobRequest(self.server.server_address, lambda source: {"id": source})
        self.addCleanup(slot.close)
        once(slot, "right", "right")
        with self.assertRaisesRegex(Failed, "printed 'wrong'"):
            once(slot, "wrong", "right")
        with self.assertRaisesRegex(Failed, "did not end"):
            once(slot, "endless", "endless")


class Judgement(unittest.TestCase):
    def test_percentiles(self):
        self.assertEqual([percentile(range(100), share) for share in (0.5, 0.95, 0.99)], [50, 95, 99])
        self.assertEqual(percentile([7], 0.99), 7)

    def test_verdicts(self):
        def verdict(value, **options):
            return bars.Bar("", "", 2, 1, lambda _: value, **options).judge({})["verdict"]

        self.assertEqual(
            [verdict(value) for value in (0.5, 1, 2, 2.1, None)], ["aim", "aim", "must", "MISSED", "not measured"]
        )
        more = bars.Bar("", "", 2, 4, lambda result: result["value"], more=True)
        self.assertEqual([more.judge({"value": value})["verdict"] for value in (4, 2, 1.9)], ["aim", "must", "MISSED"])

    def test_what_did_not_take_place_is_not_reached(self):
        verdicts = {bar["verdict"] for bar in bars.judge({"cases": {}})}
        self.assertEqual(verdicts, {"not measured"})

    def test_tables_line_up(self):
        lines = report.table(["a", "number"], [["long name", 1], ["b", 100]], [1]).splitlines()
        self.assertEqual({len(line) for line in lines}, {len(lines[0])})

    def test_the_page_has_the_figures_and_keeps_the_rest(self):
        figures = {"n": 1, "p50": 1.0, "p95": 2.0, "p99": 2.0}
        both = {"bare": figures, "sandbox-server": figures}
        case = {"title": "T", "bare_is": "b", "contenders": both, "at_once": {"concurrency": 2, "contenders": both}}
        result = {"mode": "full", "machine": {**machine.describe(2), "versions": {}}, "missing": {}}
        result["cases"] = {"static": case}
        result["bars"] = bars.judge(result)
        marks = {
            "README.md": ("<!-- speed:begin -->", "<!-- speed:end -->"),
            "docs/EVALUATION.md": ("<!-- speed:begin -->", "<!-- speed:end -->"),
            "docs/PERFORMANCE.md": ("<!-- figures: generated -->", "<!-- figures: end -->"),
        }
        with tempfile.TemporaryDirectory() as root:
            os.mkdir(os.path.join(root, "docs"))
            for name, (begin, end) in marks.items():
                with open(os.path.join(root, name), "w") as file:
                    file.write(f"above\n{begin}\nyesterday\n{end}\nbelow\n")
            with open(os.path.join(root, "result.json"), "w") as file:
                json.dump(result, file)
            report.write_docs(root, os.path.join(root, "result.json"), None)
            for name in marks:
                with open(os.path.join(root, name)) as file:
                    page = file.read()
                self.assertRegex(page, r"(?s)^above\n.*\| T .*\nbelow\n$")
                self.assertIn("`make bench`", page)
                self.assertNotIn("yesterday", page)
            xml.dom.minidom.parse(os.path.join(root, "docs", "performance.svg"))


if __name__ == "__main__":
    unittest.main()
