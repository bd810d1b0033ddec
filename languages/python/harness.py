# Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
import json as _json, os as _os, sys as _sys
_token = _os.environ.pop("TEMPLATE_TOKEN", "")

{{ code }}

def _harness():
    failed = 0
    cases = {{ cases | literal }}
    for number, case in enumerate(cases):
        report = {"case": number, "passed": False, "expected": case["expected"], "actual": None, "error": None}
        try:
            report["actual"] = {{ function }}(*case["args"])
            report["passed"] = report["actual"] == case["expected"]
        except BaseException as error:
            report["error"] = type(error).__name__ + ": " + str(error)
        failed += not report["passed"]
        print(_json.dumps(report, default=repr), flush=True)
    if failed:
        print(f"{failed} of {len(cases)} cases failed", file=_sys.stderr)
    print(_token, flush=True)
    _sys.exit(1 if failed else 0)

_harness()
