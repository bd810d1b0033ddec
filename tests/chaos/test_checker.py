"""The checker notices whatever a broken product does, and nothing else."""

import time
import unittest

import aftermath
from checker import Wrong, check
from clients import Clients
from fake import WRONGS, FakeServer
from history import Happened, History, Probe, Refusal, Run, Seen, Task
from receiver import Receiver
from workload import Expected, program

SEED = 7
JOBS = 80

# What the checker calls each wrong.
CALLED = {
    "forge-ack": "lost",
    "lose-job": "lost",
    "change-result": "two_results",
    "wrong-output": "wrong",
    "give-up": "given_up",
    "stick": "stuck",
    "lose-event": "events",
    "swap-events": "events",
    "repeat-event": "events",
    "cut-character": "events",
    "lose-webhook": "webhook_missing",
    "forge-webhook": "webhook_signature",
    "undo-cancel": "cancel_undone",
    "forget-key": "two_jobs",
    "list-twice": "listed_twice",
    "bare-500": "bad_status",
}


def judge(wrong: str | None) -> tuple[History, list[Wrong]]:
    """The real clients against a fake server that does this wrong."""
    history, fake = History(), FakeServer(SEED, wrong)
    receiver = Receiver(history, lambda number: clients.secret(number))
    servers = lambda: [("fake", fake.address)]  # noqa: E731
    clients = Clients(SEED, history, servers, receiver.port, count=16, most=JOBS)
    try:
        clients.start()
        for thread in clients.threads:
            thread.join(1 if wrong == "stick" else 20)
        clients.stop(0.5)
        await_webhooks(history, 0.5 if wrong in ("lose-webhook", "forge-webhook", "forge-ack", "stick") else 20)
        aftermath.look(history, servers)
        return history, check(history)
    finally:
        fake.close()
        receiver.close()


def await_webhooks(history: History, patience: float) -> None:
    until = history.now() + patience
    wanted = {task.id for task in history.tasks if task.secret and task.id}
    while wanted - {one.job for one in history.deliveries if one.accepted and one.valid} and history.now() < until:
        time.sleep(0.02)


class Products(unittest.TestCase):
    def test_an_honest_server_passes(self) -> None:
        history, wrong = judge(None)
        self.assertEqual(wrong, [])
        acknowledged = [task for task in history.tasks if task.id]
        self.assertGreater(len(acknowledged), JOBS // 2)
        self.assertTrue(any(task.followed_to_end for task in acknowledged))
        self.assertTrue(any(task.cancelled_at is not None for task in acknowledged))
        self.assertTrue(any(len(task.acknowledged) == 2 for task in acknowledged))
        self.assertTrue(history.deliveries and history.runs and history.batches)

    def test_every_wrong_is_noticed(self) -> None:
        self.assertEqual(sorted(CALLED), sorted(WRONGS))
        for wrong, kind in CALLED.items():
            with self.subTest(wrong):
                self.assertIn(kind, {one.kind for one in judge(wrong)[1]})


class Judgements(unittest.TestCase):
    """What no server is needed for."""

    def test_a_failed_run_needs_a_fault(self) -> None:
        history = History()
        history.runs.append(Run("t", 10, 11, 500, {"detail": "broken"}, Expected("")))
        self.assertEqual([one.kind for one in check(history)], ["failed_without_fault"])
        history.faults.append(Happened("keeper-kill", "server-0", 10.5, 10.5))
        self.assertEqual(check(history), [])

    def test_a_wrong_run_is_wrong_even_in_a_fault(self) -> None:
        history = History()
        history.faults.append(Happened("keeper-kill", "server-0", 10.5, 10.5))
        result = {"verdict": "ok", "stdout": "b", "stderr": "", "exit_code": 0}
        history.runs.append(Run("t", 10, 11, 200, result, Expected("a")))
        self.assertEqual([one.kind for one in check(history)], ["wrong"])

    def test_a_batch_answers_each_input_once(self) -> None:
        history = History()
        history.batches += [(3, [2, 0, 1]), (3, [0, 1]), (3, [0, 1, 1, 2])]
        self.assertEqual([one.kind for one in check(history)], ["wrong", "wrong"])

    def test_a_server_that_is_ready_without_its_store_lies(self) -> None:
        history = History()
        history.faults.append(Happened("redis-kill", "redis", 10, 20))
        history.probes.append(Probe("server-0", 11, 11.1, 200))
        self.assertEqual(check(history), [])
        history.probes.append(Probe("server-0", 15, 15.1, 200))
        self.assertEqual([one.kind for one in check(history)], ["ready_lie"])

    def test_a_store_may_be_back_before_that_is_noticed(self) -> None:
        history = History()
        history.faults.append(Happened("redis-kill", "redis", 10, 20, lifted=18))
        history.probes.append(Probe("server-0", 19, 19.1, 200))
        self.assertEqual(check(history), [])
        history.probes.append(Probe("server-0", 17, 17.1, 200))
        self.assertEqual([one.kind for one in check(history)], ["ready_lie"])

    def test_the_link_of_another_server_is_no_excuse_and_no_lie(self) -> None:
        history = History()
        history.faults.append(Happened("link-cut", "server-1", 10, 20))
        history.probes.append(Probe("server-0", 15, 15.1, 200))
        self.assertEqual(check(history), [])

    def test_a_server_that_never_gets_ready_again_is_noticed(self) -> None:
        history = History()
        history.faults.append(Happened("redis-kill", "redis", 10, 20))
        history.probes.append(Probe("server-0", 60, 60.1, 503))
        self.assertEqual(check(history), [], "a busy disk may be the reason")
        history.probes.append(Probe("server-0", 62, 62.1, 200))
        history.probes.append(Probe("server-0", 64, 64.1, 503))
        self.assertEqual(check(history), [], "it was ready in between")
        history.probes.append(Probe("server-0", 68, 68.1, 503))
        self.assertEqual([one.kind for one in check(history)], ["unready_lie"])

    def test_refusals_name_a_time_to_come_back(self) -> None:
        history = History()
        history.faults.append(Happened("redis-kill", "redis", 10, 20))
        history.refusals.append(Refusal(15, "POST /v1/execute", 503, True, ""))
        self.assertEqual(check(history), [])
        history.refusals.append(Refusal(15, "POST /v1/execute", 503, False, ""))
        history.refusals.append(Refusal(90, "POST /v1/execute", 503, True, ""))
        self.assertEqual([one.kind for one in check(history)], ["bad_status", "refused_without_fault"])

    def test_a_job_from_before_the_store_was_emptied_may_be_gone(self) -> None:
        history = History()
        history.tasks.append(Task(0, "t", "lines", Expected(""), acknowledged=[(5.0, "a")]))
        self.assertEqual({one.kind for one in check(history)}, {"lost", "not_listed"})
        history.forgotten_at = 6.0
        self.assertEqual(check(history), [])

    def test_only_a_job_that_lost_three_servers_is_parked(self) -> None:
        from history import Event, Final

        def outcome(attempts: int, faults: int) -> set[str]:
            history = History()
            history.tasks.append(Task(0, "t", "lines", Expected(""), acknowledged=[(5.0, "a")], seen=[Seen("s", 50, "finished", result)]))
            job = {"id": "a", "status": "finished", "attempts": attempts, "result": result}
            history.finals["a"] = [Final("s", 200, job, [Event(1, "result", {"result": result})])]
            history.listed = ["a"]
            history.faults = [Happened("server-kill", "server-0", 10.0 * n, 10.0 * n) for n in range(1, faults + 1)]
            return {one.kind for one in check(history)}

        result = {"verdict": "internal_error", "error": "the server died 3 times"}
        self.assertEqual(outcome(3, 3), {"parked"})
        self.assertEqual(outcome(1, 3), {"given_up"})
        self.assertEqual(outcome(3, 2), {"given_up"})

    def test_leftovers_are_wrong(self) -> None:
        history = History()
        history.leftovers.append("process 1")
        self.assertEqual([one.kind for one in check(history)], ["left"])


class Programs(unittest.TestCase):
    def test_a_number_is_always_the_same_program(self) -> None:
        self.assertEqual([program(3, n) for n in range(50)], [program(3, n) for n in range(50)])
        self.assertNotEqual([program(3, n).kind for n in range(50)], [program(4, n).kind for n in range(50)])


if __name__ == "__main__":
    unittest.main()
