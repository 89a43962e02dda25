"""Fetching from web servers on loopback, correct ones and faulty ones."""

import errno
import re

import filelock
import pytest

from tasks.data import cache, download
from tasks.data.download import fetch_data
from tasks.lra.text import Text
from tests.tasks.conftest import change, change_layout
from tests.tasks.servers import CUT, Server
from zoo.registry import UserError

FAULTS = {
    "absent": "HTTP 200 expected, 404 Not Found received",
    "page": r"\d+ bytes expected, 33 received",
    "page-without-length": r"\d+ bytes expected, 33 received",
    "wrong-length": r"\d+ bytes expected, many received",
    "short": r"\d+ bytes expected, \d+ received",
    "cut": rf"\d+ bytes expected, {CUT} received before IncompleteRead: ",
    "cut-between-chunks": rf"\d+ bytes expected, {CUT} received before ProtocolError: .*ended prem",
    "corrupt": "hash of downloaded file .* expected sha256:[0-9a-f]{64} but got [0-9a-f]{64}",
    "endless": r"\d+ bytes expected, more received",
    "slow": rf"\d+ bytes expected, {CUT} received before TimeoutError: timed out$",
    "unreachable": r"\d+ bytes expected, 0 received before ConnectionRefusedError: .{,40}$",
}
UNREACHABLE = "http://127.0.0.1:9/x"


@pytest.fixture
def server(acl):
    """A web server of the archive of reviews."""
    server = Server((acl.folder / "aclImdb.tar.gz").read_bytes())
    yield server
    server.close()


@pytest.fixture
def fetch(acl, server, monkeypatch):
    """Fetches the reviews from mirrors of these behaviours."""

    def fetch(*behaviours: str, progress=lambda name, received, size: None, **options):
        urls = tuple(UNREACHABLE if b == "unreachable" else server.url(b) for b in behaviours)
        archive = change(acl.source.layouts[0].archives[0], mirrors=urls)
        source = change_layout(acl.source, archives=(archive,))
        monkeypatch.setattr(Text, "source", classmethod(lambda cls: source))
        monkeypatch.setattr(download, "CHUNK", 64)
        return fetch_data("text", progress, **{"timeout": 300.0} | options)

    return fetch


@pytest.fixture
def partial(home):
    """Writes the bytes of an earlier attempt."""

    def write(content: bytes):
        (home / "downloads").mkdir(parents=True)
        (home / "downloads" / ".aclImdb.tar.gz.partial").write_bytes(content)

    return write


def files(home) -> list[str]:
    """The files of the cache except locks."""
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_fetched_data_are_those_of_an_import(fetch, acl, home, server):
    received = []
    fetched = fetch("good", progress=lambda *args: received.append(args))
    assert received[-1] == ("aclImdb.tar.gz", len(server.content), len(server.content))
    content = fetched.path.read_bytes()
    assert fetched.terms == "none"
    assert files(home) == ["aclImdb.tar.gz", fetched.path.name]
    fetched.path.unlink()
    assert Text.import_files(acl.folder / "aclImdb", acl.source).read_bytes() == content


@pytest.mark.parametrize("offline", [False, True])
def test_a_downloaded_archive_is_not_downloaded_again(fetch, server, offline):
    path = fetch("good").path
    path.unlink()
    assert fetch("good", offline=offline).path == path
    assert server.requests == [("good", None)]


def test_cached_data_are_not_fetched_again_unless_damaged(fetch, acl, server):
    path = Text.import_files(acl.folder / "aclImdb", acl.source)
    assert fetch("good") == fetch("good", offline=True) == (path, "none", True)
    assert server.requests == []
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert fetch("good") == (path, "none", False)
    assert path.read_bytes() == content


def test_a_damaged_download_is_replaced_but_not_offline(fetch, home, server):
    path = fetch("good").path
    path.unlink()
    (home / "downloads" / "aclImdb.tar.gz").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"aclImdb.tar.gz has 7 bytes, \d+ expected"):
        fetch("good", offline=True)
    assert fetch("good").path == path and len(server.requests) == 2


@pytest.mark.parametrize(
    "fault", [pytest.param("slow", marks=pytest.mark.slow), *sorted(FAULTS.keys() - {"slow"})]
)
def test_a_faulty_mirror_is_one_warning_and_the_next_one_is_used(fetch, server, home, fault):
    with pytest.warns(UserWarning) as warnings:
        # Time for the good mirror, and on a busy machine for the first bytes of the slow one.
        fetched = fetch(fault, "good", timeout=10.0 if fault == "slow" else 300.0)
    (message,) = [str(warning.message) for warning in warnings]
    url = UNREACHABLE if fault == "unreachable" else server.url(fault)
    assert message.startswith(f"{url} is skipped: ") and "\n" not in message
    assert re.search(FAULTS[fault], message)
    assert files(home) == ["aclImdb.tar.gz", fetched.path.name]


@pytest.mark.parametrize("fault", ["absent", "corrupt", "endless", "unreachable"])
def test_faulty_mirrors_only_are_an_error_and_leave_no_file(fetch, home, fault):
    with pytest.warns(UserWarning), pytest.raises(UserError) as error:
        fetch(fault)
    assert str(error.value) == (
        "no mirror gave a complete aclImdb.tar.gz; try again later, or get it from "
        "https://example.org/originals and run 'harness data import text PATH'"
    )
    assert files(home) == []


def test_a_connection_that_is_cut_is_resumed(fetch, server, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 100)
    assert fetch("cut-but-resumes").path.exists()
    starts = [None, *(f"bytes={CUT * i}-" for i in range(1, len(server.requests)))]
    assert [requested for _, requested in server.requests] == starts
    assert len(starts) == -(-len(server.content) // CUT)


def test_the_next_mirror_and_the_next_command_resume(fetch, server, home):
    with pytest.warns(UserWarning), pytest.raises(UserError):
        fetch("cut", "page")
    assert files(home) == [".aclImdb.tar.gz.partial"]
    fetch("good")
    # No new bytes came at the second request to the first mirror: there is no third.
    ranges = [None, f"bytes={CUT}-", f"bytes={CUT}-", f"bytes={CUT}-"]
    assert server.requests == list(zip(["cut", "cut", "page", "good"], ranges, strict=True))


def test_a_complete_partial_file_needs_no_request(fetch, server, partial):
    partial(server.content)
    assert fetch("good").path.exists() and server.requests == []


@pytest.mark.parametrize("behaviour", ["no-ranges", "good"])
def test_wrong_bytes_of_an_earlier_attempt_are_replaced(fetch, server, home, partial, behaviour):
    partial(bytes(50))
    fetched = fetch(behaviour)
    assert files(home) == ["aclImdb.tar.gz", fetched.path.name]
    ranges = [requested for _, requested in server.requests]
    assert ranges == (["bytes=50-"] if behaviour == "no-ranges" else ["bytes=50-", None])


def test_a_range_that_was_not_requested_is_a_fault(fetch, server, partial):
    partial(server.content[:50])
    with pytest.warns(UserWarning, match="bytes from 50 expected"):
        fetch("other-range", "good")


@pytest.mark.parametrize("behaviour", ["says-gzip", "compresses", "moved"])
def test_redirects_and_encodings_change_no_byte(fetch, behaviour):
    assert fetch(behaviour).path.exists()


def test_no_more_bytes_are_received_than_the_archive_has(fetch, server):
    received = []
    with pytest.warns(UserWarning, match="more received"):
        fetch("endless", "good", progress=lambda *args: received.append(args[1]))
    assert max(received) == len(server.content)


def test_offline_names_the_missing_archive(fetch, server, home):
    with pytest.raises(UserError, match=r"downloads holds no aclImdb.tar.gz; run 'harness data"):
        fetch("good", offline=True)
    assert server.requests == [] and not home.exists()


def test_a_full_disk_is_one_line_and_no_fault_of_the_mirror(fetch, home):
    def fill(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    message = r"cannot store aclImdb.tar.gz \(No space left on device\); make room"
    with pytest.raises(UserError, match=message):
        fetch("good", "good", progress=fill)


def test_two_processes_do_not_fetch_the_same_archive_at_once(fetch, server, home):
    (home / "downloads").mkdir(parents=True)
    with (
        filelock.FileLock(home / "downloads" / ".aclImdb.tar.gz.lock"),
        pytest.raises(UserError, match=r"aclImdb.tar.gz is being fetched by another process; wait"),
    ):
        fetch("good")
    assert server.requests == []


def test_a_folder_that_cannot_be_written_is_an_error(fetch, tmp_path, monkeypatch):
    (tmp_path / "downloads").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"cannot store aclImdb.tar.gz \(File exists\); make room"):
        fetch("good")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("listops", "listops needs no files from 'harness data'; the official files are those of"),
        ("retrieval", "retrieval has no source that can be verified; run 'harness data import"),
        ("txt", "unknown task 'txt'; did you mean 'text'"),
    ],
)
def test_what_cannot_be_fetched_is_an_error_with_a_remedy(task, message, home):
    with pytest.raises(UserError, match=message):
        fetch_data(task, lambda *progress: None)
    assert not home.exists()
