"""Uses a client that openapi-python-client has generated, as a program of a user would. The client's package is `sandbox`."""

import sys

from sandbox import AuthenticatedClient
from sandbox.api.jobs import cancel_job, create_job, get_job, get_job_events, list_jobs
from sandbox.api.runs import run_batch, run_code
from sandbox.api.server import get_health, get_metrics, list_languages
from sandbox.models import (
    Batch,
    BatchInput,
    JobStatus,
    JsonRequest,
    JsonRequestLimits,
    Problem,
    ProblemCode,
    RunResult,
    Verdict,
)

# Batches and events are JSON for clients that accept it; otherwise they are streams.
JSON = {"Accept": "application/json"}


def check(what: str, condition: object, seen: object) -> None:
    if not condition:
        sys.exit(f"python client: {what}: {seen!r}")


def main(url: str, key: str) -> None:
    client = AuthenticatedClient(base_url=url, token=key, headers=JSON, timeout=30)

    result = run_code.sync(client=client, body=JsonRequest(code="print(2+2)"))
    check("run", isinstance(result, RunResult) and result.stdout == "4\n" and result.verdict == Verdict.OK, result)

    limits = JsonRequestLimits(memory="64m", processes=8)
    result = run_code.sync(client=client, body=JsonRequest(code="1 / 0", limits=limits, timeout="5s"))
    check("failure", isinstance(result, RunResult) and result.verdict == Verdict.RUNTIME_ERROR, result)

    problem = run_code.sync(client=client, body=JsonRequest(code="1", limits=JsonRequestLimits(memory="lots")))
    check("error", isinstance(problem, Problem) and problem.code == ProblemCode.INVALID_REQUEST, problem)
    check("field of the error", problem.field == "limits.memory", problem)

    wrong = AuthenticatedClient(base_url=url, token="not-the-key", headers=JSON)
    problem = run_code.sync(client=wrong, body=JsonRequest(code="1"))
    check("wrong key", isinstance(problem, Problem) and problem.code == ProblemCode.UNAUTHORIZED, problem)

    created = create_job.sync(client=client, body=JsonRequest(code="print('job')"))
    job = get_job.sync(id=str(created.id), client=client, wait="20s")
    check("job", job.status == JobStatus.FINISHED and job.result.stdout == "job\n", job)
    page = get_job_events.sync(id=str(created.id), client=client)
    check("events", page.ended and [event.event for event in page.events][-1] == "result", page)
    check("data of events", page.events[0].data.language == "python", page.events[0])
    listed = list_jobs.sync(client=client, status=JobStatus.FINISHED, limit=5)
    check("list", listed.jobs[0].id == created.id, listed)
    check("cancel", cancel_job.sync(id=str(created.id), client=client).id == created.id, created)
    missing = get_job.sync(id="nothing", client=client)
    check("no such job", isinstance(missing, Problem) and missing.code == ProblemCode.NOT_FOUND, missing)

    inputs = [BatchInput(stdin=str(number)) for number in (3, 4)]
    batch = Batch(request=JsonRequest(code="print(int(input()) ** 2)"), inputs=inputs)
    items = run_batch.sync(client=client, body=batch)
    check("batch", [item.result.stdout for item in items] == ["9\n", "16\n"], items)

    languages = list_languages.sync(client=client)
    check("languages", any(language.name == "python" and language.available for language in languages), languages)
    check("health", get_health.sync(client=client).status == "ok", None)
    check("metrics", "sandbox_ready" in get_metrics.sync(client=client), None)
    print("python client: ok")


main(*sys.argv[1:])
