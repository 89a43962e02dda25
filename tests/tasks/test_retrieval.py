"""Retrieval: files in the official form become pairs of the same texts."""

import numpy as np
import pytest
import torch

from tasks.lra import retrieval
from tasks.lra.retrieval import Retrieval
from tests.tasks.conftest import Published, change, pack, source
from zoo.registry import UserError

LONG = b"x" * 12_000
LITERAL = rb"b'caf\xc3\xa9\n'"
QUOTES = b'quotes " and \\ stay'
PAIRS = {
    "train": [
        (b"1.0", b"A.txt", b"B.txt", LITERAL, "café".encode()),
        (b"0.0", b"B.txt", b"C.txt", "café".encode(), QUOTES),
        (b"1", b"C.txt", b"C.txt", QUOTES, QUOTES),
        (b"0", b"D.txt", b"A.txt", LONG, LITERAL),
    ],
    "eval": [(b"0.0", b"E.txt", b"C.txt", b"only here", QUOTES)],
    "test": [(b"1.0", b"A.txt", b"D.txt", LITERAL, LONG)],
}
SMALL = {"train": 4, "dev": 1, "test": 1}


@pytest.fixture
def papers(tmp_path) -> Published:
    """Pairs in the official form, in the folders of the official release, and packed."""
    folder = tmp_path / "official" / "lra_release"
    inner = folder / "lra_release" / "tsv_data"
    inner.mkdir(parents=True)
    for name, rows in PAIRS.items():
        lines = [b"\t".join(row) + b"\n" for row in rows]
        (inner / f"new_aan_pairs.{name}.tsv").write_bytes(b"".join(lines))
    archive = change(pack(folder), size=0, digest="unpublished")
    layout = change(Retrieval.source().layouts[0], archives=(archive,))
    return Published(folder.parent, source(layout, {}, dict(SMALL)), {"inner": inner})


@pytest.fixture
def load(papers):
    """Loads a split of the imported pairs, and its texts."""
    Retrieval.import_files(papers.folder, papers.source)

    def load(name: str, **options):
        split = Retrieval(**SMALL | options).load(name)
        texts = [
            bytes(token - 1 for token in row[:length].tolist())
            for row, length in zip(split.sequences, split.lengths.tolist(), strict=True)
        ]
        return split, [(texts[left], texts[right]) for left, right in split.sequence_ids.tolist()]

    return load


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_every_pair_is_loaded_byte_for_byte_in_its_order(load, name):
    split, pairs = load(name)
    expected = PAIRS["eval" if name == "dev" else name]
    assert pairs == [(left[:4000], right[:4000]) for *_, left, right in expected]
    assert split.targets.tolist() == [int(float(row[0])) for row in expected]


def test_each_text_is_stored_once_and_only_in_splits_that_use_it(load):
    split, _ = load("train")
    assert split.sequence_ids.shape == (4, 2)
    assert len(split.sequences) == 4  # of eight texts in the file
    assert len(torch.unique(split.sequences, dim=0)) == 4
    assert [len(load(name)[0].sequences) for name in ("dev", "test")] == [2, 2]


def test_a_batch_has_two_padded_sequences_per_example(load):
    batch = load("train")[0].gather(torch.tensor([1, 3]))
    assert batch.tokens.shape == (2, 2, 4000) and batch.mask is not None
    assert batch.mask.sum(-1).tolist() == [[5, 19], [4000, 16]]
    # "café", the accent two bytes.
    assert batch.tokens[0, 0, :6].tolist() == [100, 98, 103, 196, 170, 0]


def test_texts_are_truncated_at_max_len_and_cached_to_ten_thousand_bytes(load):
    assert load("test", max_len=9)[1] == [(rb"b'caf\xc3", b"x" * 9)]
    assert [len(text) for text in load("test", max_len=10_000)[1][0]] == [16, 10_000]
    assert [load("train", max_len=n)[0].padded for n in (5, 6)] == [False, True]


def test_texts_that_differ_only_after_the_cached_bytes_are_one(papers):
    path = papers.content["inner"] / "new_aan_pairs.eval.tsv"
    path.write_bytes(b"0.0\tE\tF\t" + LONG + b"\t" + LONG + b" and more\n")
    Retrieval.import_files(papers.folder / "lra_release", papers.source)
    dev = Retrieval(**SMALL).load("dev")
    assert (len(dev.sequences), dev.sequence_ids.tolist()) == (1, [[0, 0]])
    (ends,) = Retrieval(**SMALL).arrays({"ends": "int64 s"})
    assert np.diff(ends, prepend=0).tolist() == [16, 5, 19, 10_000]


def test_fewer_pairs_are_a_subset(load):
    split, pairs = load("train", train=2)
    assert split.targets.tolist() == [1, 1]  # of 1, 0, 1, 0
    assert pairs == [load("train")[1][0], load("train")[1][2]]
    with pytest.raises(UserError, match=r"retrieval.train=5 is out of range; give 1 to 4"):
        load("train", train=5)


@pytest.mark.parametrize(
    "path", ["lra_release", "lra_release/lra_release/tsv_data", "lra_release.tar.gz"]
)
def test_the_release_may_be_given_at_any_level_or_packed(papers, path, home):
    first = Retrieval.import_files(papers.folder, papers.source)
    assert Retrieval.import_files(papers.folder / path, papers.source) == first
    assert len(list(home.iterdir())) == 1


def test_an_archive_is_read_no_further_than_the_last_file(papers):
    folder = papers.folder / "lra_release"
    first = Retrieval.import_files(folder, papers.source)
    (folder / "not-used").write_bytes(np.random.default_rng(0).bytes(2**20))
    pack(folder)
    path = papers.folder / "lra_release.tar.gz"
    path.write_bytes(path.read_bytes()[: -(2**19)])
    assert Retrieval.import_files(path, papers.source) == first


def test_a_windows_line_end_is_not_part_of_a_text(papers):
    first = Retrieval.import_files(papers.folder, papers.source)
    path = papers.content["inner"] / "new_aan_pairs.eval.tsv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert Retrieval.import_files(papers.folder / "lra_release", papers.source) == first


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"0.0\tA\tB\tone text", r"has 4 columns, 5 expected \(label, id1, id2, text1, text2"),
        (b"0.0\tA\tB\tone\ttwo\tthree", "has 6 columns, 5 expected"),
        (b"", "has 1 columns, 5 expected"),
        (b"label\tid1\tid2\ttext1\ttext2", "has the label 'label', not 0.0 or 1.0"),
        (b"2.0\tA\tB\tone\ttwo", "has the label '2.0'"),
        (b"1.0\tA\tB\tcaf\xe9\ttwo", "is not UTF-8 at byte 11"),
        (b"1.0\tA\tB\t\ttwo", "has an empty text"),
        (b"1.0\tA\tB\tone\t", "has an empty text"),
    ],
)
def test_a_bad_line_is_an_error_with_file_and_number(papers, home, line, message):
    path = papers.content["inner"] / "new_aan_pairs.train.tsv"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line, *lines[3:]]) + b"\n")
    with pytest.raises(UserError, match=rf"{path}, line 3 {message}.*; get it again"):
        Retrieval.import_files(papers.folder, papers.source)
    assert not home.exists()


def test_a_line_of_any_length_does_not_fill_the_memory(papers, monkeypatch):
    monkeypatch.setattr(retrieval, "LINE_LIMIT", 20_000)
    pack(papers.folder / "lra_release")
    path = papers.content["inner"] / "new_aan_pairs.eval.tsv"
    path.write_bytes(b"0.0\tE\tF\t" + b"x" * 20_000)
    with pytest.raises(UserError, match=rf"{path}, line 1 has more than 20000 bytes"):
        Retrieval.import_files(papers.folder / "lra_release", papers.source)


def test_a_file_with_too_few_pairs_is_an_error(papers, home):
    more = change(papers.source, examples=SMALL | {"dev": 2})
    with pytest.raises(UserError, match="contains 1 examples in dev, 2 expected"):
        Retrieval.import_files(papers.folder, more)
    assert not home.exists()


@pytest.mark.parametrize("max_len", [0, 10_001])
def test_a_length_out_of_range_is_an_error(max_len):
    with pytest.raises(UserError, match=rf"retrieval.max_len={max_len} is out of range; give 1 to"):
        Retrieval(max_len=max_len)


def test_missing_pairs_are_an_error_with_the_official_archive_and_its_address():
    with pytest.raises(UserError) as error:
        Retrieval().load("test")
    message = str(error.value)
    assert "run 'harness data import retrieval PATH' with the folder of lra_release" in message
    assert "https://storage.googleapis.com/long-range-arena/lra_release.gz" in message
    assert "fetch" not in message and "\n" not in message


def test_by_default_every_published_pair_is_used():
    examples = Retrieval.source().examples
    assert Retrieval().options == {"max_len": 4000, **examples}
    assert sum(examples.values()) == 182_613
