"""A folder over HTTP on loopback, with the faults of real ones: files that are not there, and
answers that end too early."""

import posixpath
import threading
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote


@dataclass
class RangeServer:
    """By path below `folder`: `gone` are answered with 404, of `cut` comes at most so much at a
    time; `asked` is (path, Range) of each request."""

    folder: Path
    gone: set[str] = field(default_factory=set)
    cut: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    has_ranges: bool = True

    def __enter__(self) -> Self:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, site: RangeServer, *arguments: object) -> None:
        self.site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = posixpath.normpath(unquote(self.path)).lstrip("/")
        wanted = self.headers.get("Range", "")
        self.site.asked.append((path, wanted))
        file = self.site.folder / path
        if path in self.site.gone or not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0) if self.site.has_ranges else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Last-Modified", self.date_time_string(file.stat().st_mtime))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        rest = content[start:]
        self.wfile.write(rest[: self.site.cut.get(path, len(rest))])

    def log_message(self, *_: object) -> None:
        pass
