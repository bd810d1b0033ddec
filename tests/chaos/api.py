"""The HTTP API as a client with little patience sees it."""

import http.client
import json
from collections.abc import Iterator
from typing import Any

from history import Event, Json

Address = tuple[str, int]


class Unanswered(Exception):
    """There was no answer, or only half of one."""


def ask(
    address: Address, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, patience: float = 3.5
) -> tuple[int, dict[str, str], Any]:
    """One request on its own connection: status, headers, and JSON."""
    connection = http.client.HTTPConnection(*address, timeout=patience)
    try:
        sent = {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        answer = connection.getresponse()
        text = answer.read()
        fields = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, fields, parse(text)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"{method} {path}: {error!r}") from error
    finally:
        connection.close()


def parse(text: bytes) -> Any:
    try:
        return json.loads(text) if text else {}
    except ValueError:
        return {"detail": text[:200].decode(errors="replace")}


def events(address: Address, path: str, body: Json | None = None, after: int = 0, patience: float = 3.5) -> Iterator[Event]:
    """The events of a stream, one by one, until it ends. Refusals and broken streams raise."""
    connection = http.client.HTTPConnection(*address, timeout=patience)
    try:
        headers = {"Accept": "text/event-stream"}
        if after:
            headers["Last-Event-ID"] = str(after)
        if body is not None:
            headers["Content-Type"] = "application/json"
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise Refused(answer.status, parse(answer.read()))
        yield from decode(answer)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unanswered(f"{path}: {error!r}") from error
    finally:
        connection.close()


class Refused(Exception):
    """A stream was answered with an error."""

    def __init__(self, status: int, body: Json) -> None:
        super().__init__(f"{status} {body}")
        self.status, self.body = status, body


def decode(lines: Any) -> Iterator[Event]:
    """Server-sent events from lines of bytes. One without an id has the number 0; one that is cut off is none."""
    number, event, data = 0, "", []
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if data:
                yield Event(number, event, json.loads("\n".join(data)))
            number, event, data = 0, "", []
        elif line.startswith("id:"):
            number = int(line[3:].strip())
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
