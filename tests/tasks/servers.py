"""A web server on loopback that serves one archive, well or badly in every way that is known."""

import functools
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<html>This file has moved.</html>"
CUT = 320
"""Bytes after which a server hangs up: whole chunks of the size that tests read by."""


class Server:
    """Serves one archive at many paths, each path with its own way of doing it."""

    def __init__(self, content: bytes):
        self.content = content
        self.asked: list[tuple[str, str | None]] = []  # path and Range of each request
        self.done = threading.Event()
        handler = functools.partial(_Handler, self)
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, way: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{way}"

    def close(self):
        self.done.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, server: Server, *args):
        self.told = server
        super().__init__(*args)

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        way, asked = self.path.strip("/"), self.headers["Range"]
        self.told.asked.append((way, asked))
        WAYS[way](self, self.told.content, int(asked[6:-1]) if asked else 0)

    def answer(self, body: bytes, status=200, length=None, **headers):
        self.send_response(status)
        if length != "untold":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def go_on(self, content: bytes, start: int, end: int | None = None):
        rest = content[start:end]
        told = {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        length = len(content) - start
        self.answer(rest, 206 if start else 200, length, **(told if start else {}))


def _stall(self, content, start):
    self.answer(content[:CUT], length=len(content))
    self.wfile.flush()
    self.told.done.wait(20)


def _squeeze(self, content, start):
    if "gzip" in self.headers["Accept-Encoding"]:
        self.answer(gzip.compress(content), Content_Encoding="gzip")
    else:
        self.go_on(content, start)


def _chunk(self, content, start):
    self.send_response(200)
    self.send_header("Transfer-Encoding", "chunked")
    self.end_headers()
    self.wfile.write(b"%x\r\n%s\r\n" % (CUT, content[:CUT]))


def _weary(self, content, start):
    """Whole at the first time of asking, and cut off from then on."""
    WAYS["good" if len(self.told.asked) == 1 else "cut"](self, content, start)


WAYS = {
    "good": _Handler.go_on,
    "absent": lambda self, content, start: self.answer(PAGE, 404),
    "page": lambda self, content, start: self.answer(PAGE, Content_Type="text/html"),
    "page-of-untold-length": lambda self, content, start: self.answer(PAGE, length="untold"),
    "short": lambda self, content, start: self.answer(content[:-7]),
    "cut": lambda self, content, start: self.answer(content[:CUT], length=len(content)),
    "corrupt": lambda self, content, start: self.answer(bytes(len(content))),
    "lying-about-its-length": lambda self, content, start: self.answer(content, length="many"),
    "endless": lambda self, content, start: self.answer(content * 9, length="untold"),
    "cut-between-chunks": _chunk,
    "good-once": _weary,
    "slow": _stall,
    "elsewhere": lambda self, content, start: self.answer(
        content, 206, Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}"
    ),
    "cut-but-goes-on": lambda self, content, start: self.go_on(content, start, start + CUT),
    "deaf-to-ranges": lambda self, content, start: self.answer(content),
    "labels-compression": lambda self, content, start: self.answer(
        content, Content_Encoding="gzip"
    ),
    "compresses-where-it-may": _squeeze,
    "moved": lambda self, content, start: self.answer(b"", 302, Location="/good"),
}
