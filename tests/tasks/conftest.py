"""Small data sets in the form of the real ones."""

import hashlib
import json
import lzma
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import filelock
import numpy as np
import pytest

from tasks.data import cache
from tasks.data.corpus import Corpus
from tasks.data.files import Archive, File, Layout, Source


class Published(NamedTuple):
    """Small files in a real layout, their sizes and digests, and their content."""

    folder: Path
    source: Source
    content: dict


@pytest.fixture
def lock_held(monkeypatch):
    """Holds a lock in a context; gives an event that is set when another thread waits for one."""

    @contextmanager
    def hold(path: Path) -> Iterator[threading.Event]:
        waited_for, acquire = threading.Event(), filelock.FileLock.acquire

        def wait(lock, *arguments, **options):
            waited_for.set()
            return acquire(lock, *arguments, **options)

        with filelock.FileLock(path), monkeypatch.context() as patch:
            patch.setattr(filelock.FileLock, "acquire", wait)
            yield waited_for

    return hold


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data files; skips the test where none is given."""
    if "HARNESS_TEST_DATA" not in os.environ:
        pytest.skip("set HARNESS_TEST_DATA to the folder of the real data")
    return Path(os.environ["HARNESS_TEST_DATA"])


@pytest.fixture
def images(tmp_path) -> Published:
    """Random grey images, 20 train and 3 test of each class, packed as the real ones."""
    rng = np.random.default_rng(0)
    content, arrays = {}, {}
    for split, each in (("train", 20), ("test", 3)):
        content[f"x_{split}"] = rng.integers(0, 256, (10 * each, 32, 32), dtype=np.uint8)
        content[f"y_{split}"] = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), each))
        arrays[f"{split}_pixels"] = content[f"x_{split}"]
        arrays[f"{split}_targets"] = content[f"y_{split}"]
    folder = tmp_path / "packed"
    folder.mkdir()
    np.savez(folder / "images.npz", **content)
    layout = Layout(name="grey", files=(file_entry(folder / "images.npz"),))
    return Published(folder, source(layout, arrays, {"train": 200, "test": 30}), content)


@pytest.fixture
def reviews(tmp_path) -> Published:
    """Twenty short reviews of each class for train, three for test, packed as the real ones."""
    content = {
        f"{split}.jsonl.xz": [
            {
                "id": i,
                "rating": (7 if label else 1) + (i + 1) % 4,
                "label": label,
                "text": f"{split} {label} {i}: café<br />" * (i + 1),
            }
            for label in (0, 1)
            for i in range(each)
        ]
        for split, each in (("train", 20), ("test", 3))
    }
    folder = tmp_path / "packed"
    folder.mkdir()
    arrays = {}
    for name, rows in content.items():
        raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (folder / name).write_bytes(lzma.compress(raw))
        texts = [row["text"].encode() for row in rows]
        arrays |= Corpus.of(texts, [row["label"] for row in rows]).arrays(name.split(".")[0])
    layout = Layout(name="lines", files=tuple(file_entry(folder / name) for name in content))
    return Published(folder, source(layout, arrays, {"train": 40, "test": 6}), content)


@pytest.fixture
def acl(reviews, tmp_path) -> Published:
    """The same reviews as an `aclImdb` folder, and as an archive of it."""
    folder = tmp_path / "official"
    for name, rows in reviews.content.items():
        for row in rows:
            review_folder = folder / "aclImdb" / name.split(".")[0] / ("neg", "pos")[row["label"]]
            review_folder.mkdir(parents=True, exist_ok=True)
            (review_folder / f"{row['id']}_{row['rating']}.txt").write_bytes(row["text"].encode())
    unlabelled = folder / "aclImdb" / "train" / "unsup"
    unlabelled.mkdir()
    (unlabelled / "0_0.txt").write_text("not used")
    names = ("train/neg", "train/pos", "test/neg", "test/pos")
    layout = Layout(
        name="folders",
        files=tuple(File(name=name) for name in names),
        folders=("aclImdb",),
        archives=(pack(folder / "aclImdb"),),
    )
    arrays, examples = reviews.source.arrays, reviews.source.examples
    return Published(folder, source(layout, arrays, examples), reviews.content)


def pack(folder: Path) -> Archive:
    """Make an archive of `folder` next to it, and describe it."""
    path = folder.parent / f"{folder.name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return Archive(**file_entry(path).model_dump())


def source(layout: Layout, arrays, examples) -> Source:
    """An entry of `sources.toml`; from arrays or their digests."""
    return Source(
        title="t",
        origin="https://example.org/originals",
        terms="none",
        examples=examples,
        arrays={n: a if isinstance(a, str) else sha256(a.tobytes()) for n, a in arrays.items()},
        layouts=(layout,),
    )


def file_entry(path: Path) -> File:
    """The description of a file as it is."""
    content = path.read_bytes()
    return File(name=path.name, size=len(content), digest=f"sha256:{sha256(content)}")


def change(model, **fields):
    """A model of `tasks.data.files` with other fields."""
    return model.model_copy(update=fields)


def change_layout(source: Source, **fields) -> Source:
    """A source of one layout with other fields of that layout."""
    (layout,) = source.layouts
    return change(source, layouts=(change(layout, **fields),))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
