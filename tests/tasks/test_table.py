"""Tables of texts and labels: what is read as it was written, splits, and what is rejected."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tasks import create
from tasks.contract import SPLITS
from tests.conftest import one_line
from tests.tasks.conftest import require_conformance


def write(path: Path, rows, head=("text", "label")) -> str:
    if path.suffix == ".parquet":
        path.write_bytes(parquet(*zip(*rows, strict=True), names=head))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            writer.writerows([head, *rows])
    return str(path)


SIX = [(f"t{i}", "ab"[i % 2]) for i in range(6)]
"""Rows that every odd file has before its own."""


def lines(*rows, separator=",", end="\n") -> bytes:
    cells = (separator.join(row) for row in [("text", "label"), *SIX, *rows])
    return (end.join(cells) + end).encode()


def objects(*rows) -> bytes:
    six = ({"text": text, "label": label} for text, label in SIX)
    texts = (row if isinstance(row, str) else json.dumps(row) for row in [*six, *rows])
    return "\n".join(texts).encode()


def parquet(texts, labels, names=("text", "label"), kinds=lambda arrow: (None, None)) -> bytes:
    arrow, stream = pytest.importorskip("pyarrow"), io.BytesIO()
    columns = [*map(arrow.array, (texts, labels), kinds(arrow))]
    table = arrow.Table.from_arrays(columns, [*names])
    pytest.importorskip("pyarrow.parquet").write_table(table, stream)
    return stream.getvalue()


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
    task = create("table", path=write(tmp_path / f"my{suffix}", ROWS), quoted=suffix == ".TSV")
    require_conformance("table", path=task.path, quoted=task.quoted)
    splits = content(task)
    assert sorted(row for rows in splits.values() for row in rows) == sorted(ROWS)
    assert [task.classes, task.class_name(0), task.class_name(1)] == [2, "a", "b"]
    counts = [[label for _, label in rows].count("a") for rows in splits.values()]
    assert counts == [40, 5, 5] and [len(rows) for rows in splits.values()] == [160, 20, 20]


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


PLAIN = [(f"{i}", "ab"[i % 2]) for i in range(8)]
PARTS = ["train", "dev"] * 2 + ["train", "test"] * 2

UNUSABLE = [
    (PLAIN, {"text": "body"}), (PLAIN, {"split": "part"}), ([], {}),
    ([(f"{i}", "a") for i in range(8)], {}), ([(f"{i}", f"{i}") for i in range(300)], {}),
    (PLAIN[:5], {}), ([*PLAIN, ("", "a")], {}), ([*PLAIN[:2], ("x", "")], {}),
    (PLAIN, {"split": "label"}), (PLAIN, {"dev": 0.5, "test": 0.5}), (PLAIN, {"max_len": 0}),
    ([(*row, "train") for row in PLAIN], {"split": "s"}),
    ([(*row, part) for row, part in zip(PLAIN, PARTS, strict=True)], {"split": "s"}),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "options"), UNUSABLE)
def test_a_table_that_cannot_be_used_is_one_line(tmp_path, rows, options):
    path = write(tmp_path / "my.csv", rows, ("text", "label", "s")[: len(rows[0]) if rows else 2])
    with one_line(*[path] * ("max_len" not in options and "dev" not in options)):
        create("table", path=path, **options).load("train")


def test_a_missing_file_or_a_pipe_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("none.csv", "pipe.csv", "x" * 300 + ".csv"):
        with one_line(name):
            create("table", path=str(tmp_path / name))


def test_a_split_column_is_used_and_without_dev_a_share_of_train(tmp_path):
    def numbers(*parts) -> list[list[int]]:
        rows = [(f"{i}", "ab"[i // 2 % 2], parts[i % len(parts)]) for i in range(12)]
        path = write(tmp_path / "my.csv", rows, ("body", "class", "part"))
        task = create("table", path=path, text="body", label="class", split="part")
        return [[int(text) % len(parts) for text, _ in part] for part in content(task).values()]

    for name in ("validation", "valid", "val", "dev"):
        assert numbers("train", name, "test") == [[0] * 4, [1] * 4, [2] * 4]
    assert numbers("train", "test") == [[0] * 4, [0] * 2, [1] * 6]


TEXTS, AB = [f"t{i}" for i in range(6)], ["a", "b"] * 3
SIMILAR = [(text, "a") for text in ("2020-01-01", "007", "NaN", "\u2028")]
TOKENS = [[i, 300, 7] for i in range(6)]

QUOTED = [('"x', "a"), ('y"', "b"), ('"', "a")]
ODD = [(t, "01") for t in ("007", "1.0", "1e3", "NA", "null", "None", "True", "#\\n")]

READ = {
    "a byte-order mark": (".csv", lambda: b"\xef\xbb\xbf" + lines(), []),
    "a byte-order mark before JSON": (".jsonl", lambda: b"\xef\xbb\xbf" + objects(), []),
    "CR alone": (".csv", lambda: lines(("x", "a"), end="\r"), [("x", "a")]),
    "CRLF and empty lines": (".csv", lambda: lines(end="\r\n\r\n"), []),
    "a long cell": (".csv", lambda: lines(("x" * 200_000, "a")), [("x" * 512, "a")]),
    "NUL in a text": (".csv", lambda: lines(("x\0y", "a")), [("x\0y", "a")]),
    "a quoted line break": (".csv", lambda: lines(('"x,\n""y"""', "b")), [('x,\n"y"', "b")]),
    "quotation marks in TSV": (".tsv", lambda: lines(*QUOTED, separator="\t"), QUOTED),
    "texts that look like others": (".tsv", lambda: lines(*ODD, separator="\t"), ODD),
    "gzip": (".csv.gz", lambda: gzip.compress(lines()), []),
    "xz": (".tsv.xz", lambda: lzma.compress(lines(separator="\t")), []),
    "bzip2": (".jsonl.bz2", lambda: bz2.compress(objects()), []),
    "JSON that looks like others": (
        ".ndjson", lambda: objects(*({"text": t, "label": a} for t, a in SIMILAR)), SIMILAR
    ),
    "unused keys": (".jsonl", lambda: objects({"text": "x", "label": "a", "n": [1]}), [("x", "a")]),
    "binary texts and categories": (".parquet", lambda: parquet(
        [t.encode() for t in TEXTS], AB,
        kinds=lambda pa: (pa.large_binary(), pa.dictionary(pa.int8(), pa.string())),
    ), []),
}  # fmt: skip


@pytest.mark.parametrize("what", READ)
def test_an_odd_file_is_read_as_it_was_written(tmp_path, what):
    suffix, make, rows = READ[what]
    (tmp_path / f"my{suffix}").write_bytes(make())
    splits = content(create("table", path=str(tmp_path / f"my{suffix}")))
    assert sorted(row for part in splits.values() for row in part) == sorted([*SIX, *rows])


@pytest.mark.parametrize(("labels", "names"), [
    (["2", "10", "-1"], ["-1", "2", "10"]), (["0.5", "10", "2.0"], ["0.5", "2.0", "10"]),
    (["2", "10", "x"], ["10", "2", "x"]), (["1_0", "2", "3"], ["1_0", "2", "3"]),
    ([2, 10, -1], ["-1", "2", "10"]), ([True, False], ["False", "True"]),
    ([2.0, 10.0, 0.5], ["0.5", "2.0", "10.0"]),
])  # fmt: skip
def test_labels_are_read_as_texts_and_numbers_are_in_their_own_order(tmp_path, labels, names):
    values = labels * 3
    texts = [f"t{i}" for i in range(len(values))]
    rows = zip(texts, values, strict=True)
    text = "\n".join(json.dumps({"text": text, "label": label}) for text, label in rows)
    (tmp_path / "my.jsonl").write_text(text)
    task = create("table", path=str(tmp_path / "my.jsonl"))
    assert [task.class_name(target) for target in range(task.classes)] == names
    found = {text: label for part in content(task).values() for text, label in part}
    assert found == dict(zip(texts, map(str, values), strict=True))


@pytest.mark.parametrize(("suffix", "make"), [
    (".parquet", lambda: parquet(TOKENS, AB)),
    (".jsonl", lambda: b"\n".join(b'{"text": [%d, 300, 7], "label": "%c"}' % (i, b"ab"[i % 2])
                                  for i in range(6))),
    (".parquet", lambda: parquet(TOKENS, AB, kinds=lambda pa: (pa.list_(pa.uint16(), 3), None))),
])  # fmt: skip
def test_lists_of_integers_are_tokens(tmp_path, suffix, make):
    path = tmp_path / f"my{suffix}"
    path.write_bytes(make())
    task = create("table", path=str(path), max_len=4)
    require_conformance("table", path=task.path)
    splits = [task.load(name) for name in SPLITS]
    assert task.vocabulary == 302 and splits[0].sequences.dtype == torch.int16
    assert sorted(s for split in splits for s in split.sequences.tolist()) == [
        [i + 1, 301, 8, 0] for i in range(6)
    ]
    assert {length for split in splits for length in split.lengths.tolist()} == {3}
    assert sorted(t for s in splits for i in range(2) for t in task.show(s, i)) == [
        f"{i} 300 7" for i in range(6)
    ]
    kinds = ((32_767, torch.int16), (32_768, torch.int32))  # the smallest for tokens and padding
    for count, kind in kinds:
        given = create("table", path=str(path), tokens=count)
        assert given.vocabulary == count + 1 and given.load("dev").sequences.dtype == kind
    assert create("table", path=str(path), max_len=2).load("dev").sequences.shape[1] == 2
    with one_line("tokens=300", path):
        create("table", path=str(path), tokens=300)


REJECTED = [
    (".csv", lambda: b""), (".csv", lambda: b"text,label\ncaf\xe9,a\n"),
    (".csv", lambda: lines().decode().encode("utf-16")), (".csv", lambda: lines(separator=";")),
    (".txt", lines), (".parquet.gz", lambda: gzip.compress(b"PAR1")),
    (".csv", lambda: b'text,label\n"a,b\n'),
    (".csv", lambda: lines(('"x', "a"), ("y", "b"), ('so "z"', "a"))),
    (".csv", lambda: lines(("x", "y", "a"))), (".tsv", lambda: lines(("x",), separator="\t")),
    (".csv.gz", lambda: gzip.compress(lines())[:-12]), (".csv.gz", lines),
    (".csv", lambda: lines(("x", "a "))), (".csv", lambda: lines(("x", " "))),
    (".csv", lambda: lines(("x", "\x1b[31m"))), (".jsonl", lambda: objects([1, 2])),
    (".jsonl", lambda: objects('{"text": "x"')), (".jsonl", lambda: objects("[" * 10**5)),
    (".jsonl", lambda: objects({"text": "x"})),
    (".jsonl", lambda: objects('{"text": "x", "text": "y", "label": "a"}')),
    (".jsonl", lambda: objects({"text": None, "label": "a"})),
    (".jsonl", lambda: objects({"text": "x", "label": np.nan})),
    (".jsonl", lambda: objects({"text": "x", "label": 1})),
    (".jsonl", lambda: objects({"text": [1], "label": "a"})),
    (".jsonl", lambda: objects({"text": "\ud83d", "label": "a"})),
    (".jsonl", lambda: objects({"text": "x", "label": "\ud83d"})),
    (".parquet", lambda: pytest.importorskip("pyarrow") and b"PAR1"),
    (".csv", lambda: b"text,label,text\n"), (".csv", lambda: b"text,,\n"),
    (".parquet", lambda: parquet(TEXTS, AB, ("text", "text"))),
    ("-quoted.tsv", lambda: lines(('"x\ny"', "a"), separator="\t")),
    *((".parquet", partial(parquet, *columns)) for columns in [
        ([1.5] * 6, AB), (TEXTS, TOKENS), (TEXTS, [0.0, np.nan] * 3), (TEXTS, [1, None] * 3),
        ([{"a": "b"}] * 6, AB), ([[0.5]] * 6, AB), ([[1], [-1]] * 3, AB), ([[True]] * 6, AB),
        ([[]] * 6, AB), ([[2**20]] * 6, AB), ([b"\xe9"] * 6, AB),
    ]),
]  # fmt: skip


@pytest.mark.parametrize(("suffix", "make"), REJECTED)
def test_an_odd_file_that_cannot_be_read_is_one_line(tmp_path, suffix, make):
    path = tmp_path / f"my{suffix}"
    path.write_bytes(make())
    with one_line(path):
        create("table", path=str(path), quoted="quoted" in path.name)


def shard(path: Path, numbers) -> None:
    path.parent.mkdir(exist_ok=True)
    write(path, [(f"t{i}", "ab"[i % 2]) for i in numbers])


def test_a_folder_of_shards_is_one_table_and_its_digest_is_of_all(tmp_path):
    shard(tmp_path / "all" / "0.csv", range(40))
    shard(tmp_path / "part" / "a.csv", range(25))
    shard(tmp_path / "part" / "b.csv", range(25, 40))
    for name in ("README.md", "._a.csv", ".cache"):
        (tmp_path / "part" / name).write_bytes(b"\0\1")
    (tmp_path / "part" / ".git").mkdir()

    def digests(folder: str) -> list[str]:
        task = create("table", path=str(tmp_path / folder))
        return [task.load(name).digest() for name in SPLITS]

    before = digests("all")
    assert digests("part") == before
    shard(tmp_path / "part" / "b.csv", [*range(25, 39), 41])
    assert digests("part") != before


@pytest.mark.parametrize("dev", ["validation", None])
def test_files_named_as_splits_are_the_splits(tmp_path, dev):
    files = {"train-00000-of-00002": range(20), "train-00001-of-00002": range(20, 40),
             "test-00000-of-00001": range(100, 110)}  # fmt: skip
    for name, numbers in (files | ({dev: range(60, 64)} if dev else {})).items():
        shard(tmp_path / "data" / f"{name}.csv", numbers)
    found = content(create("table", path=str(tmp_path / "data")))
    numbers = {name: {int(text[1:]) for text, _ in part} for name, part in found.items()}
    assert numbers["test"] == {*range(100, 110)}
    assert numbers["dev"] == {*range(60, 64)} if dev else len(numbers["dev"]) == 4
    assert numbers["train"] == {*range(40)} - numbers["dev"]


FOLDERS = [
    [], ["a.csv", "more/b.csv"], ["a.csv", "a.tsv"], ["train.csv", "test.csv", "unlabelled.csv"],
    ["train.csv", "val.csv", "dev.csv", "test.csv"], ["train.csv", "validation.csv"],
]  # fmt: skip


@pytest.mark.parametrize("names", FOLDERS)
def test_a_folder_that_is_no_table_is_one_line(tmp_path, names):
    (tmp_path / "data").mkdir()
    for i, name in enumerate(names):
        shard(tmp_path / "data" / name, range(10 * i, 10 * i + 10))
    with one_line(tmp_path / "data"):
        create("table", path=str(tmp_path / "data")).load("train")


@pytest.mark.parametrize("name", ["wide.csv", "wide.jsonl"])
def test_a_table_of_very_many_columns_is_rejected_in_a_short_line(tmp_path, name):
    columns = [f"c{n}" for n in range(50_000)]  # in a time that does not grow with their square
    rows = {".csv": ",".join(columns), ".jsonl": json.dumps(dict.fromkeys(columns, 1))}
    (path := tmp_path / name).write_text(rows[path.suffix] + "\n")
    with one_line(path, "and 49980 more"):
        create("table", path=str(path))
