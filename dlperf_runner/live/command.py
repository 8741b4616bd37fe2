"""A local page of a campaign: the state of its runs, rates over time, telemetry and time left.

The server listens on the loopback interface only, and answers only requests with the token in its
address.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ..control.controllers import EVERY_S, CampaignWatch
from ..core.errors import UserError, as_user_error
from ..core.files import read_text
from ..options import LATEST

ORDER = 130
HELP = "--port N: The port; default: any that is free."


def command(
    directory: Path = LATEST,
    port: int = 0,
) -> None:
    """Serve a page of a campaign to this machine until Ctrl-C: states of runs, rates over time,
    telemetry and the time that is left.

    Example: dlperf live results/latest"""
    with serve_page(directory, port) as address:
        print(address, flush=True)
        threading.Event().wait()


HOST = "127.0.0.1"
_PAGE = Path(__file__).with_name("page.html")


class _Page:
    """The state of a campaign, as the page gets it."""

    def __init__(self, directory: Path) -> None:
        self.watch = CampaignWatch(directory)
        self.renew()

    def renew(self) -> None:
        self.state = json.dumps(self.watch.poll(time.time())).encode()


@contextmanager
def serve_page(directory: Path, port: int = 0) -> Iterator[str]:
    """Serve the page of a campaign; the address, with its token. Raises UserError if the port is
    taken."""
    page, stop = _Page(directory), threading.Event()
    token = secrets.token_urlsafe(24)
    with as_user_error("cannot serve the page", f"--port {port}"):
        server = ThreadingHTTPServer((HOST, port), _handler(page, token))
    server.daemon_threads = True
    threads = [
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True),
        threading.Thread(target=_keep_polling, args=(page, stop), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/{token}/"
    finally:
        stop.set()
        server.shutdown()
        server.server_close()


@contextmanager
def announce_page(directory: Path) -> Iterator[None]:
    """Serve the page, and print its address on standard error."""
    with serve_page(directory) as address:
        print(f"live page: {address}", file=sys.stderr, flush=True)
        yield


def _keep_polling(page: _Page, stop: threading.Event) -> None:
    while not stop.wait(EVERY_S):
        # A file may be replaced while it is read; the next poll reads it again.
        with suppress(UserError, OSError, ValueError, KeyError):
            page.renew()


def _handler(page: _Page, token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10
        server_version, sys_version = "dlperf", ""

        def do_GET(self) -> None:
            asked, _, name = self.path.removeprefix("/").partition("/")
            # Only this host: a page from elsewhere may have a name that leads here.
            is_local = re.fullmatch(
                r"(127\.0\.0\.1|localhost)(:\d+)?", self.headers.get("Host", "")
            )
            if not is_local or not hmac.compare_digest(asked.encode(), token.encode()):
                self.send_error(HTTPStatus.NOT_FOUND)
            elif name == "":
                nonce = secrets.token_urlsafe(16)
                text = read_text(_PAGE).replace("{{ nonce }}", nonce)
                self._answer("text/html; charset=utf-8", text.encode(), nonce)
            elif name == "state.json":
                self._answer("application/json", page.state)
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _answer(self, kind: str, content: bytes, nonce: str = "") -> None:
            self.send_response(HTTPStatus.OK)
            policy = "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'"
            policy += f"; script-src 'nonce-{nonce}'; base-uri 'none'; frame-ancestors 'none'"
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(content))),
                ("Content-Security-Policy", policy),
                ("Cache-Control", "no-store"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the token would stand in each line."""

    return Handler
