"""A receiver of webhooks on loopback: checks signatures, and refuses the first delivery of some jobs."""

import base64
import hashlib
import hmac
import http.server
import json
import threading
from collections.abc import Callable

from history import Delivery, History


def signature(secret: str, id: str, seconds: str, body: bytes) -> str:
    """A signature as Standard Webhooks says."""
    text = f"{id}.{seconds}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


class Receiver:
    """The receiver. A path is /NUMBER of the task, whose secret `secret_of` knows."""

    def __init__(self, history: History, secret_of: Callable[[int], str | None]) -> None:
        refused: set[str] = set()

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 20

            def do_POST(self) -> None:
                size = min(int(self.headers.get("content-length", "0")), 64 << 20)
                body = self.rfile.read(size)
                if len(body) < size:
                    return  # the sender was killed: this is no delivery
                id, seconds = self.headers.get("webhook-id", ""), self.headers.get("webhook-timestamp", "")
                number = int(self.path.strip("/") or "0")
                secret = secret_of(number) or ""
                valid = hmac.compare_digest(signature(secret, id, seconds, body), self.headers.get("webhook-signature", ""))
                try:
                    content = json.loads(body)
                except ValueError:
                    content, valid = {}, False
                # Every fourth job's first delivery fails, so that retries are needed.
                accepted = number % 4 != 0 or id in refused
                refused.add(id)
                history.add(history.deliveries, Delivery(history.now(), id, valid, accepted, content))
                self.send_response(204 if accepted else 500)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port: int = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
