"""Fetching from a web server on loopback, a correct one and faulty ones."""

import errno
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tasks.data import cache, download
from tasks.data.download import fetch_data
from tasks.lra.text import Text
from tests.tasks.conftest import file_of, packed_reviews
from zoo.registry import UserError

CUT = 320
"""Bytes after which a server closes the connection."""

FAULTS = {
    "absent": "404",
    "page": "hash of downloaded file",
    "short": "hash of downloaded file",
    "cut": "IncompleteRead",
    "corrupt": "hash of downloaded file",
    "endless": r"more than \d+ bytes",
    "slow": "timed out",
    "unreachable": "Connection",
}


class Handler(BaseHTTPRequestHandler):
    """Answers `/BEHAVIOUR/NAME` with the file of that name, correctly or with a fault."""

    def __init__(self, files: dict[str, bytes], requests: list[str], done, *args) -> None:
        self.files, self.requests, self.done = files, requests, done
        super().__init__(*args)

    def log_message(self, format, *args) -> None:
        pass

    def do_GET(self) -> None:
        _, behaviour, name = self.path.split("/")
        self.requests.append(behaviour)
        content, headers = self.files[name], {}
        if behaviour == "moved":
            headers = {"Location": f"/good/{name}"}
        elif behaviour == "compresses" and "gzip" in self.headers["Accept-Encoding"]:
            headers = {"Content-Encoding": "gzip"}
        elif behaviour != "endless":
            headers = {"Content-Length": str(len(content) - 7 * (behaviour == "short"))}
        self.send_response({"absent": 404, "moved": 302}.get(behaviour, 200))
        for header in headers.items():
            self.send_header(*header)
        self.end_headers()
        self.wfile.write(
            {
                "page": b"<html>".ljust(len(content)), "short": content[:-7], "moved": b"",
                "cut": content[:CUT], "slow": content[:CUT], "corrupt": bytes(len(content)),
                "endless": content * 9,
            }.get(behaviour, content)
        )  # fmt: skip
        if behaviour == "slow":
            self.wfile.flush()
            self.done.wait()


@pytest.fixture
def server(reviews, monkeypatch):
    """Serves the archive of the reviews; the addresses of its files, and what was requested."""
    monkeypatch.setattr(download, "RETRIES", 0)
    monkeypatch.setattr(download, "CHUNK", 64)
    files, requests, done = {}, [], threading.Event()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, files, requests, done))
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    yield files, requests, f"http://127.0.0.1:{http.server_port}"
    done.set()
    http.shutdown()
    http.server_close()
    thread.join()


@pytest.fixture
def fetch(reviews, server, declare):
    path = reviews.parent / "aclImdb_v1.tar.gz"
    server[0][path.name] = path.read_bytes()

    def fetch(behaviour: str, progress=lambda *_: None, **options):
        address = "http://127.0.0.1:9" if behaviour == "unreachable" else server[2]
        declare(Text, files=(file_of(path, f"{address}/{behaviour}/{path.name}"),))
        return fetch_data("text", progress, **{"timeout": 300.0} | options)

    return fetch


def files(home) -> list[str]:
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.mark.parametrize("behaviour", ["good", "moved", "compresses"])
def test_fetched_data_are_those_of_an_import(fetch, reviews, home, server, behaviour):
    received = []
    fetched = fetch(behaviour, progress=lambda *args: received.append(args))
    size = len(server[0]["aclImdb_v1.tar.gz"])
    assert received[-1] == ("aclImdb_v1.tar.gz", size, size)
    assert files(home) == ["aclImdb_v1.tar.gz", fetched.path.name]
    assert fetched.terms == Text.source.terms and not fetched.present
    content = fetched.path.read_bytes()
    assert Text.import_files(reviews).read_bytes() == content


def test_files_without_an_archive_are_fetched_one_by_one(server, declare, tmp_path):
    folder = packed_reviews(tmp_path / "packed")
    paths = sorted(folder.iterdir())
    server[0].update({path.name: path.read_bytes() for path in paths})
    urls = tuple(file_of(path, f"{server[2]}/good/{path.name}") for path in paths)
    declare(Text, files=urls)
    content = fetch_data("text", lambda *_: None).path.read_bytes()
    assert Text.import_files(folder).read_bytes() == content


@pytest.mark.parametrize("offline", [False, True])
def test_a_downloaded_archive_is_not_downloaded_again_unless_damaged(fetch, server, home, offline):
    path = fetch("good").path
    path.unlink()
    assert fetch("good", offline=offline).path == path and server[1] == ["good"]
    path.unlink()
    (home / "downloads" / "aclImdb_v1.tar.gz").write_bytes(b"damaged")
    if offline:
        with pytest.raises(UserError, match=r"aclImdb_v1.tar.gz has 7 bytes, \d+ expected"):
            fetch("good", offline=True)
    else:
        assert fetch("good").path == path and server[1] == ["good", "good"]


def test_cached_data_are_not_fetched_again_unless_damaged(fetch, reviews, server):
    path = Text.import_files(reviews)
    assert fetch("good")[::2] == fetch("good", offline=True)[::2] == (path, True)
    assert server[1] == []
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert fetch("good")[::2] == (path, False) and path.read_bytes() == content


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_server_is_one_line_and_leaves_no_file(fetch, home, fault):
    received = [0]

    def report(_: str, count: int, size: int) -> None:
        received.append(count - size)

    with pytest.raises(UserError, match=FAULTS[fault]) as error:
        fetch(fault, progress=report, timeout=0.2 if fault == "slow" else 300.0)
    assert "\n" not in str(error.value) and max(received) <= 0
    assert files(home) == []


def test_a_failed_download_is_tried_again(fetch, server, monkeypatch):
    monkeypatch.setattr(download, "RETRIES", 1)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with pytest.raises(UserError):
        fetch("absent")
    assert server[1] == ["absent", "absent"]


def test_an_interrupted_download_leaves_nothing(fetch, home):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("good", progress=interrupt)
    assert files(home) == []


def test_offline_names_the_missing_archive(fetch, server, home):
    with pytest.raises(UserError, match=r"downloads holds no aclImdb_v1.tar.gz; run 'harness data"):
        fetch("good", offline=True)
    assert server[1] == [] and not home.exists()


def test_a_full_disk_or_a_folder_that_cannot_be_written_is_one_line(fetch, tmp_path, monkeypatch):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match=r"tar.gz cannot be stored in .* \(No space left on dev"):
        fetch("good", progress=fill)
    (tmp_path / "downloads").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"cannot be stored in .*; make room"):
        fetch("good")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("listops", "listops needs no files from 'harness data'; the official files are for"),
        ("retrieval", "retrieval has no source that can be verified; run 'harness data import"),
        ("txt", "unknown task 'txt'; did you mean 'text'"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_with_a_remedy(task, message, home):
    with pytest.raises(UserError, match=message):
        fetch_data(task, lambda *progress: None)
    assert not home.exists()
