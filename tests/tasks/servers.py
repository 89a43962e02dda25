"""A web server on loopback that serves one archive, correctly or with a fault."""

import functools
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = b"<html>This file has moved.</html>"
CUT = 320
"""Bytes after which a server closes the connection."""


class Server:
    """Serves one archive at many paths; each path is the name of a behaviour of `BEHAVIOURS`."""

    def __init__(self, content: bytes):
        self.content = content
        self.requests: list[tuple[str, str | None]] = []  # path and Range of each
        self.done = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, self))
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/{behaviour}"

    def close(self):
        self.done.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, owner: Server, *args):
        self.owner = owner
        super().__init__(*args)

    def log_message(self, format, *args):
        pass

    def do_GET(self):
        behaviour, requested = self.path.strip("/"), self.headers["Range"]
        self.owner.requests.append((behaviour, requested))
        BEHAVIOURS[behaviour](self, self.owner.content, int(requested[6:-1]) if requested else 0)

    def answer(self, body: bytes, status=200, length=None, **headers):
        self.send_response(status)
        if length != "none":
            self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def send(self, content: bytes, start: int, end: int | None = None):
        headers = {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        length = len(content) - start
        self.answer(content[start:end], 206 if start else 200, length, **(headers if start else {}))


def _stall(self, content, start):
    self.answer(content[:CUT], length=len(content))
    self.wfile.flush()
    self.owner.done.wait()


def _compress(self, content, start):
    if "gzip" in self.headers["Accept-Encoding"]:
        self.answer(gzip.compress(content), Content_Encoding="gzip")
    else:
        self.send(content, start)


def _chunk(self, content, start):
    self.send_response(200)
    self.send_header("Transfer-Encoding", "chunked")
    self.end_headers()
    self.wfile.write(b"%x\r\n%s\r\n" % (CUT, content[:CUT]))


BEHAVIOURS = {
    "good": _Handler.send,
    "absent": lambda self, content, start: self.answer(PAGE, 404),
    "page": lambda self, content, start: self.answer(PAGE, Content_Type="text/html"),
    "page-without-length": lambda self, content, start: self.answer(PAGE, length="none"),
    "short": lambda self, content, start: self.answer(content[:-7]),
    "cut": lambda self, content, start: self.answer(content[:CUT], length=len(content)),
    "corrupt": lambda self, content, start: self.answer(bytes(len(content))),
    "wrong-length": lambda self, content, start: self.answer(content, length="many"),
    "endless": lambda self, content, start: self.answer(content * 9, length="none"),
    "cut-between-chunks": _chunk,
    "slow": _stall,
    "other-range": lambda self, content, start: self.answer(
        content, 206, Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}"
    ),
    "cut-but-resumes": lambda self, content, start: self.send(content, start, start + CUT),
    "no-ranges": lambda self, content, start: self.answer(content),
    "says-gzip": lambda self, content, start: self.answer(content, Content_Encoding="gzip"),
    "compresses": _compress,
    "moved": lambda self, content, start: self.answer(b"", 302, Location="/good"),
}
