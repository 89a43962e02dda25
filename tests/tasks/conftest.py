import hashlib
import json
import lzma
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tasks import cache
from tasks.known import File, Source


class Archive(NamedTuple):
    """A small archive of a real one's form, the facts about it, and what was put in."""

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
    """The folder of the real data files; tests that ask for it are skipped where it is absent."""
    beside = Path(__file__).resolve().parents[2].parent / "shared" / "data"
    folder = Path(os.environ.get("HARNESS_TEST_DATA", beside))
    if not (folder / "cifar10_gray_uint8.npz").exists():
        pytest.skip(f"no real data in {folder}; set HARNESS_TEST_DATA to their folder")
    return folder


@pytest.fixture
def pictures(tmp_path) -> Archive:
    """Random pictures, 20 train and 3 test of each class, packed as the real ones are."""
    rng = np.random.default_rng(0)
    put = {}
    for split, each in (("train", 20), ("test", 3)):
        put[f"x_{split}"] = rng.integers(0, 256, (10 * each, 32, 32), dtype=np.uint8)
        put[f"y_{split}"] = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), each))
    return archive(tmp_path, {"pictures.npz": put})._replace(put=put)


@pytest.fixture
def reviews(tmp_path) -> Archive:
    """Twenty short reviews of each class for train, three for test, packed as the real ones are."""
    put = {
        f"{split}.jsonl.xz": [
            {
                "id": i,
                "rating": 9,
                "label": label,
                "text": f"{split} {label} {i}: café<br />" * (i + 1),
            }
            for label in (0, 1)
            for i in range(each)
        ]
        for split, each in (("train", 20), ("test", 3))
    }
    return archive(tmp_path, put)


def archive(tmp_path, put) -> Archive:
    """Pack those files, arrays as `.npz` and lists as `.jsonl.xz`, and state their facts."""
    folder = tmp_path / "packed"
    folder.mkdir()
    facts = [_pack(folder / name, inside) for name, inside in put.items()]
    origin = "https://example.org/originals"
    return Archive(folder, Source(title="t", origin=origin, terms="none", files=tuple(facts)), put)


def _pack(path, inside) -> File:
    if isinstance(inside, dict):
        np.savez(path, **inside)
        contents = {name: sha256(array.tobytes()) for name, array in inside.items()}
        rows = {split: len(inside[f"y_{split}"]) for split in ("train", "test")}
    else:
        raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in inside).encode()
        path.write_bytes(lzma.compress(raw))
        contents, rows = {"raw": sha256(raw)}, {path.name.split(".")[0]: len(inside)}
    packed = path.read_bytes()
    return File(
        name=path.name, size=len(packed), sha256=sha256(packed), rows=rows, contents=contents
    )


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
