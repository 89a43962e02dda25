"""Small data sets in the form of the real ones."""

import hashlib
import json
import lzma
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tasks.conformance import checks_for, configurations, run
from tasks.data import cache
from tasks.data.corpus import Corpus
from tasks.data.files import File
from tasks.language.wikitext import WikiText
from tasks.lra.image import Image
from tasks.lra.text import Text
from tasks.registry import tasks
from tests.conftest import one_line

REVIEWS = {
    split: [
        (label, i, (7 if label else 1) + (i + 1) % 4, f"{split} {label} {i}: café<br />" * (i + 1))
        for label in (0, 1)
        for i in range(each)
    ]
    for split, each in (("train", 20), ("test", 3))
}
"""Class, number, rating and text of reviews: 20 of each class for train, 3 for test."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def rejected(home):
    def import_files(task, path: Path, *named: str) -> None:
        with one_line(*named):
            task.import_files(path)
        assert not home.exists()

    return import_files


@pytest.fixture
def declare(monkeypatch):
    def declare(task, **changes) -> None:
        monkeypatch.setattr(task, "source", replace(task.source, **changes))

    return declare


@pytest.fixture
def images(tmp_path, declare) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    content, arrays = {}, {}
    for split, each in (("train", 20), ("test", 3)):
        content[f"x_{split}"] = rng.integers(0, 256, (10 * each, 32, 32), dtype=np.uint8)
        content[f"y_{split}"] = rng.permutation(np.repeat(np.arange(10, dtype=np.uint8), each))
        arrays[f"{split}_pixels"] = content[f"x_{split}"]
        arrays[f"{split}_targets"] = content[f"y_{split}"]
    path = tmp_path / "packed" / "cifar10_gray_uint8.npz"
    path.parent.mkdir()
    np.savez(path, **content)
    examples = {"train": 200, "test": 30}
    declare(Image, files=(file_of(path),), arrays=digests(arrays), examples=examples)
    return content


@pytest.fixture
def reviews(tmp_path, declare) -> Path:
    arrays, folder = {}, tmp_path / "official" / "aclImdb"
    for split, rows in REVIEWS.items():
        for label, number, rating, text in rows:
            path = folder / split / ("neg", "pos")[label] / f"{number}_{rating}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        texts = [text.encode() for *_, text in rows]
        arrays |= Corpus.of(texts, [label for label, *_ in rows]).arrays(split)
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0_0.txt").write_text("not used")
    archive = pack(folder, "aclImdb_v1.tar.gz")
    examples = {"train": 40, "test": 6}
    declare(Text, files=(file_of(archive),), arrays=digests(arrays), examples=examples)
    return folder


def article(number: int) -> str:
    line = " = 1 rad and k = \n"
    return f" \n = A{number} = \n \n the cat {number} \n{line} \n = = B = = \n \n a <unk> dog \n"


VALID = "".join(map(article, range(12))).encode()
TEST = "".join(map(article, range(20, 23))).encode() + " the café".encode()
TRAIN = "".join(map(article, range(30, 33))).encode()


@pytest.fixture
def official(tmp_path, declare) -> Path:
    folder = tmp_path / "wikitext-103"
    folder.mkdir()
    for name, text in (("train", TRAIN), ("valid", VALID), ("test", TEST)):
        (folder / f"wiki.{name}.tokens").write_bytes(text)
    arrays = {"valid_text": sha256(VALID), "test_text": sha256(TEST)}
    declare(WikiText, arrays=arrays, files=(file_of(folder / "wiki.train.tokens"),))
    return folder


@pytest.fixture
def vowels(tmp_path, declare):
    rng = np.random.default_rng(0)
    for part, each in (("TRAIN", 10), ("TEST", 5)):
        targets = [target for target in range(9) for _ in range(each)]
        series = [
            (rng.normal(size=(rng.integers(7, 30), 12)) + target).astype(np.float32)
            for target in targets
        ]
        if part == "TRAIN":
            series[3][1, 2] = np.nan
        lines = ["@classLabel true 1 2 3 4 5 6 7 8 9", "@data"]
        for channels, target in zip(series, targets, strict=True):
            texts = (",".join(f"{value:.9g}" for value in channel) for channel in channels.T)
            lines.append(":".join([*texts, str(target + 1)]))
        (tmp_path / f"JapaneseVowels_{part}.ts").write_text("\n".join(lines) + "\n")
    examples = {"train": 90, "test": 45}
    declare(tasks.find("uea-japanese-vowels"), examples=examples, arrays={}, files=())
    return tmp_path


def require_conformance(name: str, **options) -> None:
    (subject,) = configurations(name, tasks.find(name), options)
    failed = [r for c in checks_for(subject, fast=True) if not (r := run(c, subject)).passed]
    assert not failed, failed


def packed_reviews(folder: Path) -> Path:
    folder.mkdir()
    for split, rows in REVIEWS.items():
        lines = (json.dumps({"label": label, "text": text}) + "\n" for label, _, _, text in rows)
        (folder / f"imdb_{split}.jsonl.xz").write_bytes(lzma.compress("".join(lines).encode()))
    return folder


def pack(folder: Path, name: str) -> Path:
    path = folder.parent / name
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    return path


def file_of(path: Path, url: str = "") -> File:
    content = path.read_bytes()
    return File(path.name, len(content), f"sha256:{sha256(content)}", url)


def digests(arrays) -> dict[str, str]:
    return {name: sha256(array.tobytes()) for name, array in arrays.items()}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
