"""Tests of the harness: a wrong answer is never counted, CPU time is attributed to the right processes, and bars are
evaluated correctly."""

import http.server
import json
import os
import resource
import tempfile
import threading
import types
import unittest
import xml.dom.minidom

import bars
import jobs
import machine
import report
from costs import Costs
from measure import CODE, Command, Contender, Failed, Request, at_once, interleaved, once, percentile
from processes import Family
from sampler import Meter, NoSampling, Sampler, Spent

SHELL = [["/bin/sh", "-c", CODE]]


class Commands(unittest.TestCase):
    def slot(self, steps=SHELL, extra=()):
        null = os.open(os.devnull, os.O_WRONLY)
        self.addCleanup(os.close, null)
        return Command(steps, {"PATH": "/usr/bin:/bin"}, null, extra=extra)

    def test_a_right_answer_has_a_time(self):
        self.assertGreater(once(self.slot(), "echo hello", "hello\n"), 0)

    def test_descriptors_of_a_command_may_have_the_number_of_its_pipe(self):
        opened = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDONLY, 0) for number in range(3, 30)]
        once(self.slot(extra=opened), "echo hello", "hello\n")

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
                if self.path == "/v1/execute":
                    body = json.dumps({"id": json.loads(body)["code"], "status": "queued"}).encode()
                self.send_response(500 if b"broken" in body else 202 if self.path == "/v1/execute" else 200)
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
                job = self.path.partition("?")[0].rpartition("/")[2]
                printed = jobs.PRINTED if job == "right" else job
                body = json.dumps({"result": {"stdout": printed} if job != "endless" else None}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 64

        cls.server = Server(("127.0.0.1", 0), Handler)
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

    def test_jobs_count_when_their_results_are_right(self):
        server = types.SimpleNamespace(address=self.server.server_address)
        self.assertGreater(jobs.carried_out(server, 40, "right"), 0)
        for source in ("wrong", "endless"):
            with self.assertRaisesRegex(Failed, "did not end as it should"):
                jobs.carried_out(server, 40, source)


class CpuTime(unittest.TestCase):
    def sampler(self):
        try:
            sampler = Sampler()
        except NoSampling as reason:
            self.skipTest(str(reason))
        self.addCleanup(sampler.close)
        return sampler

    def test_it_is_what_the_kernel_counted_for_short_processes_and_their_children(self):
        null = os.open(os.devnull, os.O_WRONLY)
        self.addCleanup(os.close, null)
        loop = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
        steps = [["/bin/sh", "-c", f"{loop}; sh -c '{loop}; true'; true"], ["/bin/echo", "hello"]]
        contender = Contender("a", lambda: Command(steps, {"PATH": os.environ["PATH"]}, null))
        meter = Meter(self.sampler(), contender)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with meter:
            for _ in range(5):
                once(contender.new_slot(), "", "hello\n")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        counted = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.assertAlmostEqual(meter.of("program").both / counted, 1, delta=0.15)
        self.assertEqual(meter.own, meter.of("program"))
        self.assertGreater(meter.machine.both, meter.own.both * 0.999)

    def test_roles_follow_forks(self):
        living = {1: "client", 10: "caller", 11: "keeper", 12: "init", 13: "zygote", 2: "kernel"}
        # 13 forks 14, which forks 15 into the cell of 16; 17 is what 15 starts; 18 is compiled code below 12.
        forks = {16: 11, 14: 13, 15: 14, 17: 15, 18: 12, 19: 13, 20: 2, 21: 1, 30: 31}
        role = Family(living, started="caller").roles(forks)
        expected = {10: "caller", 11: "keeper", 16: "init", 14: "helper", 15: "program", 17: "program", 18: "program"}
        expected |= {19: "program", 20: "kernel", 21: "caller", 1: "client", 30: "other", 99: "other"}
        self.assertEqual({pid: role(pid) for pid in expected}, expected)

    def test_reused_process_ids_do_not_make_a_circle(self):
        role = Family({}).roles({5: 6, 6: 5})
        self.assertEqual([role(5), role(6)], ["other", "other"])

    def test_the_machines_own_work_is_subtracted(self):
        costs = Costs(None, [Contender("a", None)])
        costs.idle.seconds, costs.idle.roles = 1.0, {"kernel": Spent(0, 0.1), "other": Spent(0.5, 0)}
        meter, costs.runs["a"] = costs.meters["a"], 10
        meter.seconds = 2.0
        meter.roles = {"program": Spent(0.04, 0.01), "zygote": Spent(0, 0.01), "helper": Spent(0, 0.02)}
        meter.roles |= {"kernel": Spent(0, 0.3), "other": Spent(1, 0), "client": Spent(0.02, 0)}
        figures = costs.figures("a")
        self.assertEqual(figures["roles"], {"zygote": 3.0, "program": 5.0})
        self.assertEqual((figures["user"], figures["system"], figures["kernel"]), (4.0, 4.0, 10.0))
        self.assertEqual((figures["total"], figures["machine"], figures["client"]), (18.0, 18.0, 2.0))


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

    def test_throughput_and_cost_compare_the_right_sides(self):
        rates = {"1": (100, 150, 20), "8": (120, 130, 50)}
        levels = {
            level: {name: {"rate": rate} for name, rate in zip(("bare", "sandbox-server", "go-judge"), one, strict=True)}
            for level, one in rates.items()
        }
        result = {"throughput": {"python": {"levels": levels}}}
        result["costs"] = {"python": {"contenders": {"bare": {"total": 8.0}, "sandbox-server warm": {"total": 2.0}}}}
        self.assertEqual(bars.throughput("python")(result), 150 / 120)
        self.assertEqual(bars.throughput("python", "go-judge")(result), 3)
        self.assertEqual(bars.cost("python", "warm")(result), 0.25)

    def test_more_cores_help_until_the_keeper_is_busy(self):
        spent = {"rate": 200.0, "total": 7.5, "client": 0.5, "roles": {"keeper": 0.5, "zygote": 0.2}}
        slower = {**spent, "rate": 100.0, "total": 9.0}
        result = {"throughput": {"python": {"levels": {"1": {"sandbox-server": slower}, "8": {"sandbox-server": spent}}}}}
        lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.more_cores(result).splitlines()[2:]]
        self.assertEqual(lines[0], ["4", "500", "2000", "5000", "500", "1"])
        self.assertEqual(lines[2], ["64", "8000", "2000", "5000", "2000", "4"])
        self.assertIsNone(report.more_cores({"throughput": {}}))

    def test_tables_line_up(self):
        lines = report.table(["a", "number"], [["long name", 1], ["b", 100]], [1]).splitlines()
        self.assertEqual({len(line) for line in lines}, {len(lines[0])})

    def test_missed_bars_are_said_in_a_sentence(self):
        bar = {"what": "Python", "unit": "× bare", "must": 2, "aim": None, "more": True}
        reached, unknown = {**bar, "value": 3.0, "verdict": "must"}, {**bar, "value": None, "verdict": "not measured"}
        low, high = {**bar, "value": 1.5, "verdict": "MISSED"}, {**bar, "value": 0.1234, "more": False, "verdict": "MISSED"}
        self.assertEqual(report.missed({"bars": [reached]}), "1 of 1 performance targets were reached.")
        self.assertEqual(
            report.missed({"bars": [reached, low, unknown, high]}),
            "1 of 3 performance targets were reached. Missed: Python (1.5 × bare, target ≥ 2); "
            "Python (0.123 × bare, target ≤ 2). Not measured: 1.",
        )

    def test_the_readme_says_which_bars_are_missed(self):
        case = lambda title: {"title": title, "contenders": {"bare": {"p50": 1.0}, "runc": {"p50": 9.0}}}  # noqa: E731
        result = {"cases": {"static": case("S"), "pandas": case("P")}, "machine": machine.describe(2)}
        result["bars"] = [{"what": "w", "unit": "u", "must": 2, "more": True, "value": 1.5, "verdict": "MISSED"}]
        for load, busy in ((0.5, False), (1.5, True)):
            result["machine"]["load_before"] = load
            text = report.summary(result)
            self.assertIn("| S ", text)
            self.assertNotIn("| P ", text)
            self.assertNotIn("runc", text)
            self.assertLessEqual(max(map(len, text.splitlines())), 100)
            words = " ".join(text.split())
            self.assertIn("0 of 1 performance targets were reached. Missed: w (1.5 u, target ≥ 2).", words)
            self.assertEqual("busy with other work" in words, busy)

    def test_the_page_has_the_figures_and_keeps_the_rest(self):
        figures = {"n": 1, "p50": 1.0, "p95": 2.0, "p99": 2.0}
        both = {"bare": figures, "sandbox-server": figures}
        case = {"title": "T", "bare_is": "b", "contenders": both, "at_once": {"concurrency": 2, "contenders": both}}
        result = {"mode": "full", "machine": {**machine.describe(2), "versions": {}}, "missing": {}}
        result["cases"] = {"static": case}
        cost = {"runs": 2, "user": 1.0, "system": 1.0, "kernel": 0.5, "total": 2.5, "machine": 2.6, "client": 0.1}
        cost["roles"] = {"program": 2.0}
        costs = {"bare": cost, "sandbox-server cold": {**cost, "starts": {"cold": 3, "ready": 1}}}
        result["costs"] = {"static": {"title": "T", "bare_is": "b", "contenders": costs}}
        rates = {"bare": {"rate": 9.0, **cost}, "sandbox-server": {"rate": 20.0, **cost}}
        result["throughput"] = {"python": {"title": "T", "levels": {"2": rates, "8": rates}}}
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
            self.assertRegex(page, r"\| sandbox-server cold \|.*\| +75 % \|")
            self.assertRegex(page, r"\| T +\| +2 \| +9\.0 \| +20 \| +2\.22 \|")
            xml.dom.minidom.parse(os.path.join(root, "docs", "performance.svg"))


if __name__ == "__main__":
    unittest.main()
