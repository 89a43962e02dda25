"""The data commands: what they print, and with which exit code."""

import hashlib
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from tasks.data.files import Archive, Edition, File, Source
from tasks.lra.text import Text

# The command shows warnings itself.
SHOWN = pytest.mark.filterwarnings("always")


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, format, *args):
        pass


@pytest.fixture
def harness(capsys, tmp_path, monkeypatch):
    """Runs a command with an empty cache; gives the exit code, the output and the errors."""
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "cache"))

    def run(*argv: str):
        with pytest.raises(SystemExit) as left:
            main(argv)
        return left.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Four reviews, at an address on loopback; the mirror before it does not have them."""
    path = tmp_path / "web" / "reviews.tar.gz"
    for place in ("train/neg/0_1", "train/pos/0_9", "test/neg/0_1", "test/pos/0_9"):
        review = tmp_path / "aclImdb" / f"{place}.txt"
        review.parent.mkdir(parents=True)
        review.write_text("So so.")
    path.parent.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "aclImdb", "aclImdb")
    web = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(path.parent)))
    thread = threading.Thread(target=web.serve_forever, args=(0.01,))
    thread.start()
    url = f"http://127.0.0.1:{web.server_port}"
    known = Archive(
        name=path.name,
        size=path.stat().st_size,
        digest=f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}",
        mirrors=(f"{url}/absent", f"{url}/{path.name}"),
    )
    names = ("train/neg", "train/pos", "test/neg", "test/pos")
    files = tuple(File(name=name) for name in names)
    source = Source(
        title="t",
        origin="https://example.org",
        terms="cite us",
        rows={"train": 2, "test": 2},
        arrays={},
        editions=(Edition(name="folders", files=files, archives=(known,)),),
    )
    monkeypatch.setattr(Text, "source", classmethod(lambda cls: source))
    yield source
    web.shutdown()
    web.server_close()
    thread.join()


@SHOWN
def test_fetch_says_where_the_data_are_and_on_what_terms(harness, published, tmp_path):
    code, out, err = harness("data", "fetch", "text")
    assert code == 0
    first, second = out.splitlines()
    assert first.startswith(f"fetched: {tmp_path / 'cache' / 'text@1.'}")
    assert second == "terms: cite us"
    (warning,) = err.splitlines()  # and no bar, where there is no terminal
    assert warning.startswith("harness: warning: http://127.0.0.1:")
    assert "absent is passed over: HTTP 200 expected, 404" in warning


@SHOWN
@pytest.mark.parametrize("argv", [("list",), ("fetch", "text"), ("import", "text", ".")], ids=repr)
def test_a_cache_that_is_a_file_is_refused(harness, published, tmp_path, monkeypatch, argv):
    (tmp_path / "notes.txt").write_text("mine")
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "notes.txt"))
    monkeypatch.chdir(tmp_path / "aclImdb")
    line = f"harness: HARNESS_DATA={tmp_path / 'notes.txt'} is a file; set it to a folder\n"
    assert harness("data", *argv) == (2, "", line)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@SHOWN
def test_fetch_offline_uses_what_was_fetched_before(harness, published):
    code, out, err = harness("data", "fetch", "text", "--offline")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "run 'harness data fetch text' without --offline" in err
    fetched = harness("data", "fetch", "text")[1]
    present = fetched.replace("fetched:", "present:")
    assert harness("data", "fetch", "text", "--offline") == (0, present, "")
    Path(fetched.splitlines()[0].removeprefix("fetched: ")).unlink()
    assert harness("data", "fetch", "text", "--offline") == (0, fetched, "")


@SHOWN
def test_fetch_from_bad_mirrors_only_is_one_line_of_error_behind_the_warnings(
    harness, published, monkeypatch
):
    archive = published.editions[0].archives[0]
    bad = replace(archive, mirrors=archive.mirrors[:1])
    edition = replace(published.editions[0], archives=(bad,))
    source = replace(published, editions=(edition,))
    monkeypatch.setattr(Text, "source", classmethod(lambda cls: source))
    code, out, err = harness("data", "fetch", "text")
    warning, error = err.splitlines()
    assert (code, out) == (2, "")
    assert warning.startswith("harness: warning: ")
    assert error.startswith("harness: no mirror gave reviews.tar.gz whole; try again later")


def test_list_names_the_official_archive_of_retrieval_and_where_it_is_published(harness):
    code, out, _ = harness("data", "list")
    line = next(line for line in out.splitlines() if line.startswith("retrieval: "))
    assert code == 0
    assert "run 'harness data import retrieval PATH' with the folder of lra_release" in line
    assert line.endswith("https://storage.googleapis.com/long-range-arena/lra_release.gz")


def test_an_import_prints_the_place_in_the_cache(harness, published, tmp_path):
    code, out, err = harness("data", "import", "text", str(tmp_path / "aclImdb"))
    assert (code, err) == (0, "")
    place = out.removeprefix("imported: ").strip()
    with np.load(place, allow_pickle=False) as arrays:
        assert arrays["train_targets"].tolist() == [0, 1]


def test_fetching_what_has_no_verifiable_source_is_refused(harness):
    code, out, err = harness("data", "fetch", "retrieval")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert "no source that can be verified; run 'harness data import retrieval PATH'" in err


def test_nothing_heavy_is_imported_for_a_refusal_of_the_command_line():
    script = (
        "import sys; from harness.cli import main; sys.argv = ['harness', 'data', 'fetsh']\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 2\n"
        "else: raise AssertionError('it was taken')\n"
        "assert not {'torch', 'requests'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
