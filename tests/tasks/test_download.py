"""Fetching from web servers on loopback, good ones and bad ones of every kind."""

import errno
import re
import warnings
from dataclasses import replace

import filelock
import numpy as np
import pytest

from tasks.data import cache, download
from tasks.data.download import fetch_data
from tasks.lra.text import Text
from tests.tasks.servers import CUT, Server
from zoo.registry import UserError

FAULTS = {
    "absent": "HTTP 200 expected, 404 Not Found found",
    "page": r"\d+ bytes expected, 33 found",
    "page-of-untold-length": r"\d+ bytes expected, 33 found",
    "lying-about-its-length": r"\d+ bytes expected, many found",
    "short": r"\d+ bytes expected, \d+ found",
    "cut": rf"\d+ bytes expected, {CUT} found before IncompleteRead: ",
    "cut-between-chunks": rf"\d+ bytes expected, {CUT} found before ProtocolError: .*ended prem",
    "corrupt": "hash of downloaded file .* expected sha256:[0-9a-f]{64} but got [0-9a-f]{64}",
    "endless": r"\d+ bytes expected, more found",
    "slow": rf"\d+ bytes expected, {CUT} found before TimeoutError: timed out$",
    "unreachable": r"\d+ bytes expected, 0 found before ConnectionRefusedError: .{,40}$",
}


@pytest.fixture
def server(acl):
    """A web server of the archive of reviews."""
    serving = Server((acl.folder / "aclImdb.tar.gz").read_bytes())
    yield serving
    serving.close()


@pytest.fixture
def get(acl, server, monkeypatch):
    """Fetches the reviews from a server's ways, one mirror after the other."""

    def fetch_by(*ways: str, watch=lambda name, done, size: None, **options):
        (edition,) = acl.source.editions
        urls = tuple("http://127.0.0.1:9/x" if w == "unreachable" else server.url(w) for w in ways)
        archive = replace(edition.archives[0], mirrors=urls)
        known = replace(acl.source, editions=(replace(edition, archives=(archive,)),))
        monkeypatch.setattr(Text, "source", classmethod(lambda cls: known))
        monkeypatch.setattr(download, "CHUNK", 64)
        return fetch_data("text", watch, **{"timeout": 0.5} | options)

    return fetch_by


def kept(home) -> list[str]:
    """What lies in the cache, locks aside."""
    return sorted(p.name for p in home.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_what_is_fetched_is_what_an_import_brings(get, acl, home):
    fetched = get("good")
    good = fetched.path.read_bytes()
    assert fetched.terms == "none"
    assert kept(home) == ["aclImdb.tar.gz", fetched.path.name]
    fetched.path.unlink()
    assert Text.bring(acl.folder / "aclImdb", acl.source).read_bytes() == good


def test_what_was_downloaded_is_not_downloaded_again(get, server):
    get("good").path.unlink()
    get("good")
    assert server.asked == [("good", None)]


def test_data_that_are_there_are_not_fetched_again(get, acl, server):
    held = Text.bring(acl.folder / "aclImdb", acl.source)
    assert get("good") == (held, "none", True)
    assert get("good", offline=True) == (held, "none", True)
    assert server.asked == []


def test_damaged_data_are_made_again(get):
    fetched = get("good")
    whole = fetched.path.read_bytes()
    fetched.path.write_bytes(whole[:-1])
    assert get("good", offline=True) == fetched
    assert fetched.path.read_bytes() == whole


def test_a_damaged_download_is_replaced(get, home, server):
    good = get("good").path
    good.unlink()
    (home / "downloads" / "aclImdb.tar.gz").write_bytes(b"damaged")
    assert get("good").path == good
    assert len(server.asked) == 2


@pytest.mark.parametrize("way", FAULTS)
def test_a_bad_mirror_is_one_warning_and_the_next_one_serves(get, server, home, way):
    with pytest.warns(UserWarning) as warned:
        fetched = get(way, "good")
    (warning,) = [str(one.message) for one in warned]
    url = "http://127.0.0.1:9/x" if way == "unreachable" else server.url(way)
    assert warning.startswith(f"{url} is passed over: ") and "\n" not in warning
    assert re.search(FAULTS[way], warning)
    assert kept(home) == ["aclImdb.tar.gz", fetched.path.name]


@pytest.mark.parametrize("way", sorted(FAULTS.keys() - {"cut", "cut-between-chunks", "slow"}))
def test_bad_mirrors_only_are_refused_and_leave_the_cache_as_it_was(get, home, way):
    cache.write("set@1", {"a": np.arange(3)})
    before = kept(home)
    with pytest.warns(UserWarning), pytest.raises(UserError) as refused:
        get(way)
    message = str(refused.value)
    assert message == (
        "no mirror gave aclImdb.tar.gz whole; try again later, or get it from "
        "https://example.org/originals and run 'harness data import text PATH'"
    )
    assert kept(home) == before


def test_a_mirror_that_is_cut_off_is_asked_for_the_rest(get, server, monkeypatch):
    monkeypatch.setattr(download, "ATTEMPTS", 100)
    fetched = get("cut-but-goes-on")
    assert fetched.path.exists()
    starts = [None, *(f"bytes={CUT * i}-" for i in range(1, len(server.asked)))]
    assert [asked for _, asked in server.asked] == starts
    assert len(starts) == -(-len(server.content) // CUT)


def test_the_next_mirror_goes_on_where_the_last_was_cut_off(get, server):
    with pytest.warns(UserWarning, match="cut is passed over"):
        get("cut", "good")
    rest = f"bytes={CUT}-"
    # Nothing more came at the second time of asking: there is no third.
    assert server.asked == [("cut", None), ("cut", rest), ("good", rest)]


def test_the_next_command_goes_on_where_the_last_was_cut_off(get, server, home):
    with pytest.warns(UserWarning), pytest.raises(UserError):
        get("cut")
    assert kept(home) == [".aclImdb.tar.gz.partial"]
    get("good")
    assert server.asked[-1] == ("good", f"bytes={CUT}-")


def test_an_archive_that_had_come_whole_is_not_asked_for(get, server, home):
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / ".aclImdb.tar.gz.partial").write_bytes(server.content)
    assert get("good").path.exists()
    assert server.asked == []


@pytest.mark.parametrize("way", ["page", "lying-about-its-length"])
def test_a_page_in_between_does_not_cost_what_had_come(get, server, way):
    with pytest.warns(UserWarning) as warned:
        get("cut", way, "good")
    assert len(warned) == 2
    assert server.asked[-1] == ("good", f"bytes={CUT}-")


@pytest.mark.parametrize("way", ["deaf-to-ranges", "good"])
def test_a_spoiled_beginning_does_not_spoil_the_archive(get, server, home, way):
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / ".aclImdb.tar.gz.partial").write_bytes(bytes(50))
    fetched = get(way)
    assert kept(home) == ["aclImdb.tar.gz", fetched.path.name]
    ranges = [asked for _, asked in server.asked]
    assert ranges == (["bytes=50-"] if way == "deaf-to-ranges" else ["bytes=50-", None])


def test_what_ends_the_second_try_is_what_is_told(get, home):
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / ".aclImdb.tar.gz.partial").write_bytes(bytes(50))
    with (
        pytest.warns(UserWarning, match=f"{CUT} found before IncompleteRead"),
        pytest.raises(UserError),
    ):
        get("good-once")


def test_a_range_that_was_not_asked_for_is_not_taken(get, server, home):
    (home / "downloads").mkdir(parents=True)
    (home / "downloads" / ".aclImdb.tar.gz.partial").write_bytes(server.content[:50])
    with pytest.warns(UserWarning, match="bytes from 50 expected"):
        get("elsewhere", "good")


@pytest.mark.parametrize("way", ["labels-compression", "compresses-where-it-may", "moved"])
def test_a_redirect_and_a_label_of_compression_spoil_no_download(get, way):
    assert get(way).path.exists()


def test_progress_is_told_to_the_last_byte(get, server):
    told = []
    get("good", watch=lambda *progress: told.append(progress))
    assert told[-1] == ("aclImdb.tar.gz", len(server.content), len(server.content))


def test_no_more_is_taken_than_the_archive_has(get, server):
    told = []
    with pytest.warns(UserWarning, match="more found"):
        get("endless", "good", watch=lambda *progress: told.append(progress))
    assert max(done for _, done, _ in told) == len(server.content)


def test_another_edition_serves_where_the_first_has_no_good_mirror(acl, server, monkeypatch, home):
    (edition,) = acl.source.editions
    good = replace(edition.archives[0], mirrors=(server.url("good"),))
    bad = replace(good, name="other.tar.gz", mirrors=(server.url("absent"),))
    editions = tuple(replace(edition, archives=(one,)) for one in (bad, good))
    known = replace(acl.source, editions=editions)
    monkeypatch.setattr(Text, "source", classmethod(lambda cls: known))
    with pytest.warns(UserWarning, match="404"):
        fetched = fetch_data("text", lambda *progress: None)
    assert kept(home) == ["aclImdb.tar.gz", fetched.path.name]
    server.asked.clear()
    fetched.path.unlink()
    assert fetch_data("text", lambda *progress: None) == fetched
    assert server.asked == []


def test_offline_uses_what_was_downloaded_and_asks_nobody(get, server):
    good = get("good").path
    good.unlink()
    server.asked.clear()
    assert get("good", offline=True).path == good
    assert server.asked == []


def test_offline_says_what_is_missing(get, server, home):
    with pytest.raises(UserError, match=r"downloads holds no aclImdb.tar.gz; run 'harness data"):
        get("good", offline=True)
    assert server.asked == [] and not home.exists()


def test_offline_refuses_a_damaged_download(get, home):
    get("good").path.unlink()
    (home / "downloads" / "aclImdb.tar.gz").write_bytes(b"damaged")
    with pytest.raises(UserError, match=r"aclImdb.tar.gz has 7 bytes, \d+ expected"):
        get("good", offline=True)


def test_a_full_disk_is_a_clear_line_and_no_fault_of_the_mirror(get, home, monkeypatch):
    def fill(self, url, have):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download._Resuming, "_go_on", fill)
    with warnings.catch_warnings(), pytest.raises(UserError) as refused:
        warnings.simplefilter("error")
        get("good", "good")
    assert "cannot take aclImdb.tar.gz (No space left on device); make room" in str(refused.value)
    assert kept(home) == []


def test_two_processes_do_not_fetch_the_same_archive_at_once(get, server, home):
    (home / "downloads").mkdir(parents=True)
    with (
        filelock.FileLock(home / "downloads" / ".aclImdb.tar.gz.lock"),
        pytest.raises(UserError, match=r"aclImdb.tar.gz is being fetched by another process; wait"),
    ):
        get("good")
    assert server.asked == []
    assert get("good").path.exists()


def test_a_folder_that_cannot_be_written_is_refused(get, tmp_path, monkeypatch):
    (tmp_path / "downloads").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=r"cannot take aclImdb.tar.gz \(File exists\); make room"):
        get("good")


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("listops", "listops is generated when it is run; nothing to fetch"),
        ("retrieval", "retrieval has no source that can be verified; run 'harness data import"),
        ("txt", "unknown task 'txt'; did you mean 'text'"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_what_to_do(task, message, home):
    with pytest.raises(UserError, match=message):
        fetch_data(task, lambda *progress: None)
    assert not home.exists()
