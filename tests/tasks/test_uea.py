"""Time series: reading `.ts`, import, splits, missing values, normalisation, baselines."""

import io
import lzma
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks import create
from tasks.baselines import compute, rocket
from tasks.contract import SPLITS
from tasks.data.files import Member
from tasks.data.sources import import_all
from tasks.registry import tasks
from tasks.uea.series import filled, hold_out, normalised, scale_of
from tasks.uea.ts_format import read
from tests.conftest import one_line
from tests.tasks.conftest import require_conformance

CAMEL = """\
#A comment: with @data in it, and a damaged \ufffd
@problemName Vowels
@timeStamps false
@missing true
@univariate false
@dimensions 2
@equalLength false
@classLabel true b a
@data
"""
LOWER = "% made by another program\n@classlabel\tTRUE b  a\n\n@DATA\n"
ROWS = "1,2.5,-3e-1:4,?,6:a\n7:NaN:b\n"
VOWELS = tasks.find("uea-japanese-vowels")
SMALL = VOWELS(train=72, dev=18, test=45)


def member(text: str, name: str = "X_TRAIN.ts") -> Member:
    content = text.encode("latin-1", "replace")
    content = lzma.compress(content) if name.endswith(".xz") else content
    return Member(name, f"/data/{name}", io.BytesIO(content))


@pytest.mark.parametrize(("name", "header"), [
    ("X_TRAIN.ts", CAMEL), ("X_TRAIN.ts.xz", LOWER), ("X_TRAIN.ts", "\xef\xbb\xbf" + LOWER[25:]),
    ("X_TRAIN.ts.xz", CAMEL.replace("\n", "\r\n")),
])  # fmt: skip
def test_series_of_unequal_lengths_and_missing_values_are_read(name, header):
    read_file = read(member(header + ROWS, name))
    assert read_file.labels == ("b", "a") and read_file.targets == [1, 0]
    first, second = read_file.series
    np.testing.assert_array_equal(first, np.float32([[1, 4], [2.5, np.nan], [-0.3, 6]]))
    np.testing.assert_array_equal(second, np.float32([[7, np.nan]]))


DAMAGED = [
    CAMEL, CAMEL.replace("@data", ""), CAMEL.replace("@data\n", "1:2:a\n"),
    CAMEL.replace("true b a", "false") + ROWS, CAMEL.replace("Stamps false", "Stamps true") + ROWS,
    *(CAMEL + rows for rows in (
        "1,2:3:a\n", "1:2:c\n", "a\n", "1:inf:a\n", "1:2:a\n1:2:3:a\n", "1_0:2:a\n",
        "\u00b2:2:a\n", "1:1e99:a\n",
    )),
    *(CAMEL.replace("b a", names) + ROWS for names in ("b a b", "b \xe9", "b \x1b[2J", "b,a")),
    CAMEL.replace("@data\n", "@data 1:2:a\n"), CAMEL.replace("\n", "\r") + ROWS,
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_is_one_line_that_names_the_place(text):
    with one_line("X_TRAIN.ts"):
        read(member(text))


def test_an_own_set_of_one_channel_is_a_task(tmp_path):
    header = "@univariate true\n@classLabel true 1 -1\n@data\n"
    # The class is the sign of the slope.
    rows = "".join(f"{i},{i + s},{i + 2 * s}:{s}\n" for i in range(5) for s in (1, -1))
    (tmp_path / "GunPoint_TRAIN.ts").write_text(header + rows)
    (tmp_path / "GunPoint_TEST.ts").write_text(header + "1,?,3,4:1\n2,1:-1\n")
    require_conformance("series", path=str(tmp_path))
    task = create("series", path=str(tmp_path))
    assert (task.classes, task.channels, task.max_len) == (2, 1, 4)
    assert create("series", path=str(tmp_path), points=9).max_len == 4
    assert [task.class_name(target) for target in range(2)] == ["1", "-1"]
    splits = {name: task.load(name) for name in SPLITS}
    assert [len(split) for split in splits.values()] == [8, 2, 2]
    test = splits["test"]
    assert test.lengths.tolist() == [4, 2] and test.targets.tolist() == [0, 1]
    first = test.sequences[0, :, 0]
    torch.testing.assert_close(first.diff(), first.diff()[:1].expand(3))
    assert not test.sequences[1, 2:].any()
    short = create("series", path=str(tmp_path), points=2).load("test")
    assert short.sequences.shape == (2, 2, 1) and short.lengths.tolist() == [2, 2]
    path = tmp_path / "GunPoint_TEST.ts"
    path.write_text(path.read_text().replace("3,4", "3,5"))
    assert create("series", path=str(tmp_path)).load("test").digest() != test.digest()


HEAD = "@classLabel true 1 -1\n@data\n"
FIVE = HEAD + "1,2:1\n3,2:-1\n" * 3
OWN = [
    None, [], [("G_TEST", FIVE)], [(n, FIVE) for n in ("A_TRAIN", "A_TEST", "B_TRAIN", "B_TEST")],
    [("A_TRAIN", FIVE), ("B_TEST", FIVE)],
    [("A_TRAIN", FIVE), ("A_TEST", FIVE.replace("1 -1", "-1 1"))],
    [("A_TRAIN", FIVE), ("A_TEST", HEAD + "1:2:1\n")],
    [(n, "@classLabel true 1\n@data\n" + "1:1\n" * 5) for n in ("A_TRAIN", "A_TEST")],
    [("A_TRAIN", HEAD + "1:1\n" * 4), ("A_TEST", HEAD + "1:1\n")],
    [("A_TRAIN", FIVE), ("A_TEST.ts.xz", FIVE)],
    [("A_TRAIN", "@targetLabel true\n@data\n1,2:0.5\n"), ("A_TEST", FIVE)],
]  # fmt: skip


@pytest.mark.parametrize("files", OWN)
def test_an_own_set_that_cannot_be_read_is_one_line(tmp_path, files):
    for name, content in files or []:
        (tmp_path / (name if "." in name else f"{name}.ts")).write_text(content)
    with one_line(tmp_path):
        create("series", path=str(tmp_path if files is not None else tmp_path / "nowhere"))


def test_the_family_is_imported_from_one_folder(vowels, home):
    (path,) = import_all("uea", vowels)
    require_conformance("uea-japanese-vowels", train=72, dev=18, test=45)
    assert path.name.startswith("uea-japanese-vowels@1.")
    split = SMALL.load("test")
    assert split.sequences.shape == (45, 26, 12) and split.padded
    assert split.targets.bincount().tolist() == [5] * 9
    lines, first = SMALL.show(split, 0), split.sequences[0, 0]
    assert [line.split()[0] for line in lines] == [f"{value:.2f}" for value in first[:3].tolist()]
    own = create("series", path=str(vowels), points=26)
    assert all(own.load(name).digest() == SMALL.load(name).digest() for name in SPLITS)
    with one_line("uea-ethanol-concentration"):
        import_all("uea", home)


def test_train_and_dev_are_disjoint_and_stratified():
    targets = np.repeat(np.arange(26, dtype=np.uint8), np.arange(26) % 9 + 2)
    held = hold_out(targets)
    assert len(held["dev"]) == len(targets) // 5
    assert sorted([*held["train"], *held["dev"]]) == [*range(len(targets))]
    counts, dev = np.bincount(targets), np.bincount(targets[held["dev"]], minlength=26)
    assert (abs(dev - counts / 5) < 1).all()


def test_a_split_is_its_series_from_the_start_in_units_of_train(vowels):
    VOWELS.import_files(vowels)
    series, targets = {}, {}
    for part in ("TRAIN", "TEST"):
        lines = (vowels / f"JapaneseVowels_{part}.ts").read_text().splitlines()[2:]
        rows = [line.split(":") for line in lines]
        series[part] = [np.array([c.split(",") for c in row[:-1]], float).T[:26] for row in rows]
        targets[part] = [int(row[-1]) - 1 for row in rows]
    interpolated = series["TRAIN"][3]
    interpolated[1, 2] = (interpolated[0, 2] + interpolated[2, 2]) / 2
    held = hold_out(np.array(targets["TRAIN"], np.uint8))
    points = np.concatenate([series["TRAIN"][i] for i in held["train"]])
    mean, deviation = points.mean(0), points.std(0)
    for name, indices in (held | {"test": range(45)}).items():
        part, split = "TEST" if name == "test" else "TRAIN", SMALL.load(name)
        assert split.targets.tolist() == [targets[part][i] for i in indices]
        for row, length, i in zip(split.sequences, split.lengths.tolist(), indices, strict=True):
            expected = (series[part][i] - mean) / deviation
            assert length == len(expected) and not row[length:].any()
            np.testing.assert_allclose(row[:length].numpy(), expected, atol=1e-5)


def test_missing_values_are_interpolated_within_their_channel():
    nan = np.nan
    series = np.float32([[nan, 1, nan], [2, nan, nan], [nan, nan, nan], [4, 7, nan]])
    expected = np.float32([[2, 1, nan], [2, 3, nan], [3, 5, nan], [4, 7, nan]])
    np.testing.assert_allclose(filled(series), expected)
    assert np.isnan(series).sum() == 8
    mean, deviation = scale_of([np.float32([[1, 1, 5], [1, 1, 7]]), filled(series)])
    assert mean[2] == 6 and not normalised(filled(series), mean, deviation)[:, 2].any()
    assert scale_of([filled(series)])[1][2] == 1


def test_the_baselines_of_signals_ignore_padding(vowels, monkeypatch):
    monkeypatch.setattr(rocket, "GROUPS", 5)
    VOWELS.import_files(vowels)
    splits = {name: SMALL.load(name) for name in SPLITS}
    test = splits["test"]
    padding = torch.arange(26) >= test.lengths[:, None]
    noisy = replace(test, sequences=test.sequences.masked_fill(padding[..., None], 50.0))
    np.testing.assert_allclose(rocket.statistics(noisy), rocket.statistics(test), rtol=1e-5)
    np.testing.assert_array_equal(rocket.convolutions(noisy), rocket.convolutions(test))
    accuracies = compute(SMALL, splits)
    assert accuracies.keys() == {"chance", "majority", *rocket.MODELS}
    # The classes differ in their means, which convolutions with weights of mean 0 do not measure.
    assert accuracies["statistics of channels"] > 0.9
