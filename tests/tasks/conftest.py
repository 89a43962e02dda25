import hashlib
import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tasks.data import cache
from tasks.data.corpus import Corpus
from tasks.data.files import Archive, Edition, File, Source


class Packed(NamedTuple):
    """Small files of a real edition's form, the facts about them, and what was put in."""

    folder: Path
    source: Source
    put: dict


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """An empty cache for each test."""
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of the real data files; tests that ask for it are skipped where none is named."""
    if "HARNESS_TEST_DATA" not in os.environ:
        pytest.skip("set HARNESS_TEST_DATA to the folder of the real data")
    return Path(os.environ["HARNESS_TEST_DATA"])


@pytest.fixture
def pictures(tmp_path) -> Packed:
    """Random grey pictures, 20 train and 3 test of each class, packed as the real ones are."""
    rng = np.random.default_rng(0)
    put = {}
    for split, each in (("train", 20), ("test", 3)):
        put[f"x_{split}"] = rng.integers(0, 256, (10 * each, 32, 32), dtype=np.uint8)
        put[f"y_{split}"] = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), each))
    folder = tmp_path / "packed"
    folder.mkdir()
    np.savez(folder / "pictures.npz", **put)
    names = {"x_train": "train_pixels", "y_train": "train_targets"}
    names |= {"x_test": "test_pixels", "y_test": "test_targets"}
    arrays = {names[name]: array for name, array in put.items()}
    editions = [Edition(name="grey", files=(facts(folder / "pictures.npz"),))]
    return Packed(folder, source(editions, arrays, {"train": 200, "test": 30}), put)


@pytest.fixture
def reviews(tmp_path) -> Packed:
    """Twenty short reviews of each class for train, three for test, packed as the real ones are."""
    put = {
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
    for name, rows in put.items():
        raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        (folder / name).write_bytes(lzma.compress(raw))
        texts = [row["text"].encode() for row in rows]
        arrays |= Corpus.of(texts, [row["label"] for row in rows]).arrays(name.split(".")[0])
    editions = [Edition(name="lines", files=tuple(facts(folder / name) for name in put))]
    return Packed(folder, source(editions, arrays, {"train": 40, "test": 6}), put)


@pytest.fixture
def acl(reviews, tmp_path) -> Packed:
    """The same reviews as an `aclImdb` folder, and as an archive of it beside it."""
    folder = tmp_path / "official"
    for name, rows in reviews.put.items():
        for row in rows:
            place = folder / "aclImdb" / name.split(".")[0] / ("neg", "pos")[row["label"]]
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{row['id']}_{row['rating']}.txt").write_bytes(row["text"].encode())
    unlabelled = folder / "aclImdb" / "train" / "unsup"
    unlabelled.mkdir()
    (unlabelled / "0_0.txt").write_text("of no use")
    archive = pack(folder / "aclImdb")
    names = ("train/neg", "train/pos", "test/neg", "test/pos")
    edition = Edition(
        name="folders",
        files=tuple(File(name=name) for name in names),
        folders=("aclImdb",),
        archives=(archive,),
    )
    known = reviews.source
    return Packed(folder, source([edition], known.arrays, known.rows), reviews.put)


def pack(folder: Path, mirrors: tuple[str, ...] = ()) -> Archive:
    """Make an archive of `folder` beside it, and state its facts."""
    path = folder.parent / f"{folder.name}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    known = facts(path)
    return Archive(name=known.name, size=known.size, digest=known.digest, mirrors=mirrors)


def source(editions, arrays, rows) -> Source:
    """What `sources.toml` would say; arrays or their digests."""
    return Source(
        title="t",
        origin="https://example.org/originals",
        terms="none",
        rows=rows,
        arrays={n: a if isinstance(a, str) else sha256(a.tobytes()) for n, a in arrays.items()},
        editions=tuple(editions),
    )


def facts(path: Path) -> File:
    """What is known of a file that is good as it is."""
    packed = path.read_bytes()
    return File(name=path.name, size=len(packed), digest=f"sha256:{sha256(packed)}")


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
