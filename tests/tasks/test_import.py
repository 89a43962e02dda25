"""Data from folders, archives and a web server on loopback: only verified files are imported."""

import errno
import io
import os
import re
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from tasks import create
from tasks.contract import SPLITS
from tasks.data import cache, sources
from tasks.data.corpus import in_split
from tasks.data.files import Member
from tasks.data.sources import ImportedTask, fetch_data
from tasks.lra.image import Image
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.conftest import one_line
from tests.harness.specs import raising
from tests.tasks.conftest import file_of, packed_reviews
from zoo.registry import UserError

IMPORTED = [name for name, task in tasks.items() if issubclass(task, ImportedTask)]
ARCHIVE = "aclImdb_v1.tar.gz"


@pytest.mark.parametrize("name", IMPORTED)
def test_a_source_is_declared_completely(name):
    source = tasks.find(name).source
    assert source.origin.startswith("https://") and source.title and source.terms and source.give
    assert source.examples.keys() <= {*SPLITS} and re.compile(source.pattern)
    digests = [f"sha256:{of}" for of in source.arrays.values()] + [of.digest for of in source.files]
    assert all(re.fullmatch("sha256:[0-9a-f]{64}|sha1:[0-9a-f]{40}", of) for of in digests)
    assert all(of.url.startswith("https://") and of.size > 100_000 for of in source.downloads)
    assert bool(source.downloads) == bool(source.arrays)  # so that downloads can be verified


REAL = [
    "image", "text", "wikitext", "uea-handwriting", "uea-japanese-vowels",
    "uea-uwave-gesture-library",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_the_real_files_are_those_of_the_source(name):
    # An import verifies the digest of each array, and the number of examples.
    if not (folder := os.environ.get("HARNESS_TEST_DATA")):
        pytest.skip("set HARNESS_TEST_DATA to the folder of the real data")
    sources.import_all(name, Path(folder))
    assert all(len(create(name).load(split)) for split in SPLITS)


def test_the_held_out_examples_are_fixed():
    targets = np.repeat(np.arange(2, dtype=np.uint8), 40)
    assert in_split(targets, "dev").tolist() == [3, 11, 13, 20, 48, 53, 59, 62]
    repeats = np.arange(80) == 3
    blocks = in_split(targets, "dev", repeats, in_blocks=True)
    assert blocks.tolist() == [7, 11, 15, 19, 43, 47, 51, 55]


@pytest.mark.parametrize(
    "place", ["official", "official/aclImdb", "official/aclImdb_v1.tar.gz", "renamed", "w.zip"]
)
def test_the_official_files_give_the_same_data_at_any_level_packed_or_not(reviews, tmp_path, place):
    content = Text.import_files(packed_reviews(tmp_path / "packed")).read_bytes()
    (reviews / "test/neg/.DS_Store").write_bytes(b"\xff")  # of a file manager
    if place == "renamed":
        (reviews.parent / "aclImdb_v1.tar.gz").rename(tmp_path / place)
    if place == "w.zip":
        with zipfile.ZipFile(tmp_path / place, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in reviews.rglob("*"):
                archive.write(path, path.relative_to(reviews.parent))
    assert Text.import_files(tmp_path / place).read_bytes() == content


@pytest.mark.parametrize(("damage", "path"), [
    (lambda f: None, "nowhere"), (lambda f: (f / "new").mkdir(), "new"),
    (lambda f: (f / "a").write_bytes(b"x"), "a"),
    (lambda f: os.mkfifo(f / "pipe"), "pipe"), (lambda f: os.mkfifo(f / "test/neg/9_2.txt"), ""),
])  # fmt: skip
def test_other_files_than_the_known_ones_are_one_line(reviews, rejected, damage, path):
    damage(reviews)
    rejected(Text, reviews / path, Path(path).name)


def test_known_files_are_verified_before_they_are_opened(reviews, images, tmp_path, rejected):
    npz = tmp_path / "packed" / "cifar10_gray_uint8.npz"
    for task, path in ((Text, reviews.parent / ARCHIVE), (Image, npz)):
        path.write_bytes(b"not a tar" + path.read_bytes()[9:])
        rejected(task, path, path.name, "SHA256")
        path.write_bytes(path.read_bytes()[:-1])
        rejected(task, path, path.name, "bytes")


def test_no_member_of_an_archive_is_extracted_followed_or_read_twice(
    reviews, rejected, tmp_path, monkeypatch
):
    with tarfile.open(tmp_path / "evil.tar.gz", "w:gz") as archive:
        for name in ("train", "test", "test/neg"):
            archive.add(reviews / name, name)
    rejected(Text, tmp_path / "evil.tar.gz", "evil.tar.gz", "test/neg/0_2.txt")
    path = tmp_path / "deep" / "evil.tar.gz"
    path.parent.mkdir()
    monkeypatch.chdir(path.parent)
    with tarfile.open(path, "w:gz") as archive:
        for number, kind in enumerate((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE), 9):
            link = tarfile.TarInfo(f"aclImdb/test/neg/{number}_1.txt")
            link.type, link.linkname = kind, "/etc/hostname"
            archive.addfile(link)
        archive.add(reviews / "test" / "neg" / "0_2.txt", "../escaped.txt")
        archive.add(reviews, "../aclImdb")
    before = set(tmp_path.rglob("*"))
    written = Text.import_files(path)
    assert set(tmp_path.rglob("*")) - before == {written, written.parent}


def test_a_line_and_a_file_of_any_length_do_not_fill_the_memory():
    with one_line("x, line 2", "5 bytes"):
        [*Member("x", "x", io.BytesIO(b"1234\n123456")).lines(5)]
    with one_line("x has", "5 bytes"):
        Member("x", "x", io.BytesIO(b"123456")).read(5)


def test_a_failed_import_leaves_the_cache_as_it_was_and_another_repairs_it(reviews, home):
    path = Text.import_files(reviews)
    content = path.read_bytes()
    (reviews / "test/neg/0_2.txt").write_bytes(b"changed")
    with pytest.raises(UserError):
        Text.import_files(reviews)
    assert [*home.iterdir()] == [path] and path.read_bytes() == content
    path.write_bytes(b"damaged")
    with one_line(path):
        Text(train=36, dev=4, test=6).load("test")
    assert Text.import_files(reviews.parent / ARCHIVE).read_bytes() == content


CUT = 320
"""Bytes after which a server closes the connection."""


class Handler(BaseHTTPRequestHandler):
    """Sends a file in the way that the first folder of its address names."""

    file: Path
    address: str
    requests: list[str]
    done: threading.Event

    def log_message(self, format, *args) -> None:
        pass

    def do_GET(self) -> None:
        _, behaviour, name = self.path.split("/")
        self.requests.append(behaviour)
        content = self.file.read_bytes()
        self.send_response({"absent": 404, "moved": 302}.get(behaviour, 200))
        if behaviour == "moved":
            self.send_header("Location", f"/good/{name}")
        elif behaviour == "compresses" and "gzip" in self.headers["Accept-Encoding"]:
            self.send_header("Content-Encoding", "gzip")
        elif behaviour != "endless":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        bodies = {
            "page": b"<html>".ljust(len(content)), "moved": b"", "cut": content[:CUT],
            "slow": content[:CUT], "endless": content * 9,
        }  # fmt: skip
        self.wfile.write(bodies.get(behaviour, content))
        if behaviour == "slow":
            self.wfile.flush()
            self.done.wait()


@pytest.fixture
def requests(reviews, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(sources, "RETRIES", 0)
    monkeypatch.setattr(sources, "CHUNK", 64)
    path, Handler.done, Handler.requests = reviews.parent / ARCHIVE, threading.Event(), []
    Handler.file = path
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,)).start()
        Handler.address = f"http://127.0.0.1:{http.server_port}"
        yield Handler.requests
        Handler.done.set()
        http.shutdown()


@pytest.fixture
def fetch(requests, declare):
    def fetch(behaviour: str, progress=lambda *_: None, **options):
        address = "http://127.0.0.1:9" if behaviour == "unreachable" else Handler.address
        declare(Text, files=(file_of(Handler.file, f"{address}/{behaviour}/{ARCHIVE}"),))
        return fetch_data("text", progress, **{"timeout": 300.0} | options)

    return fetch


def files(home) -> list[str]:
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


@pytest.mark.parametrize("behaviour", ["good", "moved", "compresses"])
def test_fetched_data_are_those_of_an_import(fetch, reviews, home, behaviour):
    received = []
    fetched = fetch(behaviour, progress=lambda *args: received.append(args))
    size = Handler.file.stat().st_size
    assert received[-1] == (ARCHIVE, size, size)
    assert files(home) == [ARCHIVE, fetched.path.name]
    assert fetched.terms == Text.source.terms and not fetched.present
    content = fetched.path.read_bytes()
    assert Text.import_files(reviews).read_bytes() == content


def test_data_are_not_downloaded_again_unless_damaged(fetch, requests, reviews, home):
    with one_line(ARCHIVE):
        fetch("good", offline=True)
    assert requests == [] and not home.exists()
    path = fetch("good").path
    for offline in (False, True):
        path.unlink()
        assert fetch("good", offline=offline).path == path and requests == ["good"]
    path.unlink()
    (home / "downloads" / ARCHIVE).write_bytes(b"damaged")
    with one_line(ARCHIVE, "7 bytes"):
        fetch("good", offline=True)
    assert fetch("good").path == path and requests == ["good", "good"]
    # The cached data alone are enough.
    (home / "downloads" / ARCHIVE).unlink()
    assert fetch("good")[::2] == fetch("good", offline=True)[::2] == (path, True)
    assert len(requests) == 2
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert fetch("good")[::2] == (path, False) and path.read_bytes() == content


@pytest.mark.parametrize("fault", ["absent", "page", "cut", "endless", "slow", "unreachable"])
def test_a_faulty_server_is_one_line_and_leaves_no_file(fetch, home, fault):
    received, timeout = [], 0.2 if fault == "slow" else 300.0
    with one_line(ARCHIVE):
        fetch(fault, progress=lambda *of: received.append(of), timeout=timeout)
    assert all(count <= size for _, count, size in received) and files(home) == []


def test_a_full_disk_or_a_folder_that_cannot_be_written_is_one_line(fetch, tmp_path, monkeypatch):
    with one_line("tar.gz", "No space left on device"):
        fetch("good", progress=raising(OSError(errno.ENOSPC, "No space left on device")))
    (tmp_path / "downloads").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    with one_line(tmp_path):
        fetch("good")
