"""Custom data: tables of texts and labels."""

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import pandas
import pytest

from tasks import create
from tasks.contract import SPLITS
from tests.conftest import one_line
from tests.tasks.conftest import require_conformance


def write(path: Path, rows, head=("text", "label")) -> str:
    if path.suffix == ".parquet":
        pandas.DataFrame(rows, columns=list(head)).to_parquet(path)
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            writer.writerows([head, *rows])
    return str(path)


ROWS = [(f'"é", {i}' if i % 4 else f"other\t{i}", "b" if i % 4 else "a") for i in range(200)]


def content(task):
    texts_of = {}
    for name in SPLITS:
        split = task.load(name)
        labels = map(task.class_name, split.targets.tolist())
        texts_of[name] = [(task.show(split, i)[0], label) for i, label in enumerate(labels)]
    return texts_of


@pytest.mark.parametrize("suffix", [".csv", ".TSV", ".parquet"])
def test_every_row_is_in_one_of_three_stratified_splits(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    task = create("table", path=write(tmp_path / f"my{suffix}", ROWS), quoted=suffix == ".TSV")
    require_conformance("table", path=task.path, quoted=task.quoted)
    splits = content(task)
    assert sorted(row for rows in splits.values() for row in rows) == sorted(ROWS)
    assert [task.classes, task.class_name(0), task.class_name(1)] == [2, "a", "b"]
    counts = [[label for _, label in rows].count("a") for rows in splits.values()]
    assert counts == [40, 5, 5] and [len(rows) for rows in splits.values()] == [160, 20, 20]


def test_a_token_is_its_byte_plus_one_truncated_and_padded(tmp_path):
    path = write(tmp_path / "my.csv", [(f"é{i}", i % 2) for i in range(8)])
    split = create("table", path=path, max_len=2).load("train")
    assert split.sequences.tolist() == [[0xC4, 0xAA]] * 4 and not split.padded
    split = create("table", path=path, max_len=4).load("train")
    assert split.sequences[0].tolist()[:2] == [0xC4, 0xAA] and split.sequences[0, 3] == 0
    assert split.lengths.tolist() == [3] * 4


def test_the_seed_determines_the_splits(tmp_path):
    path = write(tmp_path / "my.csv", ROWS)
    digests = [create("table", path=path, seed=n).load("dev").digest() for n in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]
    fixed = "f84b904bd86dda915e4e20cb9d76451e68636f49a79401a943ee5aa833d0ddcd"
    assert digests[0] == fixed, "other splits need another version"


def test_rows_with_the_same_text_are_in_the_same_split(tmp_path):
    rows = [(f"text {i % 40}", str(i % 2)) for i in range(400)]
    rows += [("text 0", "1")] * 3  # the same text with another label
    splits = content(create("table", path=write(tmp_path / "my.csv", rows), dev=0.3, test=0.3))
    texts = [{text for text, _ in part} for part in splits.values()]
    assert [len(part) for part in texts] == [16, 12, 12] and len(set.union(*texts)) == 40
    assert sum(map(len, splits.values())) == 403


def test_every_split_has_a_text_of_every_class_whatever_the_shares(tmp_path):
    path = write(tmp_path / "my.csv", [(f"{i}", str(i % 3)) for i in range(9)])
    for dev, test in ((0.01, 0.01), (0.8, 0.1), (0.1, 0.8), (0.49, 0.49)):
        task = create("table", path=path, dev=dev, test=test)
        assert [task.load(name).targets.bincount().tolist() for name in SPLITS] == [[1, 1, 1]] * 3


def test_a_split_column_is_used_as_it_is(tmp_path):
    rows = [(f"{i}", "ab"[i % 2], SPLITS[i % 3]) for i in range(12)]
    path = write(tmp_path / "my.csv", rows, ("body", "class", "part"))
    expected = {name: [(t, label) for t, label, part in rows if part == name] for name in SPLITS}
    assert content(create("table", path=path, text="body", label="class", split="part")) == expected


PLAIN = [(f"{i}", "ab"[i % 2]) for i in range(8)]


def with_parts(*parts: str) -> list[tuple[str, str, str]]:
    return [(*row, part) for row, part in zip(PLAIN, parts, strict=True)]


REJECTED = [
    (PLAIN, {"text": "body"}), (PLAIN, {"split": "part"}), ([], {}),
    ([(f"{i}", "a") for i in range(8)], {}), ([(f"{i}", f"{i}") for i in range(300)], {}),
    (PLAIN[:5], {}), ([*PLAIN, ("", "a")], {}), ([*PLAIN[:2], ("x", "")], {}),
    (PLAIN, {"split": "label"}), (PLAIN, {"dev": 0.5, "test": 0.5}), (PLAIN, {"max_len": 0}),
    (with_parts(*["train"] * 8), {"split": "s"}),
    (with_parts(*["train", "dev"] * 2, *["train", "test"] * 2), {"split": "s"}),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "options"), REJECTED)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path, rows, options):
    head = ("text", "label", "s")[: len(rows[0]) if rows else 2]
    path = write(tmp_path / "my.csv", rows, head)
    with one_line(*(path,) * ("max_len" not in options and "dev" not in options)):
        create("table", path=path, **options).load("train")


@pytest.mark.parametrize("name", ["validation", "valid", "val", "dev"])
def test_dev_has_several_names_and_is_a_share_of_train_where_none_is_given(tmp_path, name):
    def numbers(parts: Sequence[str]) -> list[list[int]]:
        rows = [(f"{i}", "ab"[i // 2 % 2], parts[i % len(parts)]) for i in range(12)]
        path = write(tmp_path / "my.csv", rows, ("text", "label", "part"))
        found = content(create("table", path=path, split="part"))
        return [[int(text) % len(parts) for text, _ in part] for part in found.values()]

    assert numbers(("train", name, "test")) == [[0] * 4, [1] * 4, [2] * 4]
    assert numbers(("train", "test")) == [[0] * 4, [0] * 2, [1] * 6]


def test_a_missing_file_a_folder_or_a_pipe_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "folder.csv").mkdir()
    for name in ("none.csv", "pipe.csv", "folder.csv", "x" * 300 + ".csv"):
        with one_line(name):
            create("table", path=str(tmp_path / name))
