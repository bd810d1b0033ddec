"""A real server whose data are taken back to an earlier state, as after a lost fsync: the run must fail, and only then.

SANDBOX_SERVER names the program; without it there is nothing to test.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SERVER = os.environ.get("SANDBOX_SERVER", "")


@unittest.skipUnless(SERVER, "SANDBOX_SERVER is not set")
class EndToEnd(unittest.TestCase):
    def chaos(self, *options: str) -> tuple[int, set[str], int]:
        """Exit code, kinds of wrongs, and the number of acknowledged jobs."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "report.json")
            command = [sys.executable, os.path.join(HERE, "chaos.py"), "--sandbox-server", SERVER, "--store", "embedded"]
            command += ["--only", "none", "--minutes", "0.2", "--seed", "1", "--json", path, *options]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=500)
            self.assertIn(ended.returncode, (0, 1), ended.stdout + ended.stderr)
            with open(path) as file:
                report = json.load(file)[0]
            return ended.returncode, {one["kind"] for one in report["wrong"]}, report["jobs"]

    def test_a_server_without_faults_passes(self) -> None:
        code, wrong, jobs = self.chaos()
        self.assertEqual((code, wrong), (0, set()))
        self.assertGreater(jobs, 0)

    def test_a_store_that_is_taken_back_is_noticed(self) -> None:
        code, wrong, _ = self.chaos("--sabotage", "rollback")
        self.assertEqual(code, 1)
        self.assertIn("lost", wrong)


if __name__ == "__main__":
    unittest.main()
