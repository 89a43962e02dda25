"""Retrieval: files of the official form in, pairs of the same documents out."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks.data.files import Edition, File
from tasks.lra.retrieval import Retrieval
from tests.tasks.conftest import Packed, pack, source
from zoo.registry import UserError, resolve

LONG = b"x" * 12_000
PAIRS = {
    "train": [
        (b"1.0", b"A.txt", b"B.txt", b"b'caf\\xc3\\xa9\\n'", "café".encode()),
        (b"0.0", b"B.txt", b"C.txt", "café".encode(), b'quotes " and \\ stay'),
        (b"1", b"C.txt", b"C.txt", b'quotes " and \\ stay', b'quotes " and \\ stay'),
        (b"0", b"D.txt", b"A.txt", LONG, b"b'caf\\xc3\\xa9\\n'"),
    ],
    "eval": [(b"0.0", b"E.txt", b"C.txt", b"only here", b'quotes " and \\ stay')],
    "test": [(b"1.0", b"A.txt", b"D.txt", b"b'caf\\xc3\\xa9\\n'", LONG)],
}
SMALL = {"train": 4, "dev": 1, "test": 1}


@pytest.fixture
def papers(tmp_path) -> Packed:
    """Pairs in the official form, in the folders of the official release, and packed."""
    folder = tmp_path / "official" / "lra_release"
    inner = folder / "lra_release" / "tsv_data"
    inner.mkdir(parents=True)
    for name, rows in PAIRS.items():
        lines = [b"\t".join(row) + b"\n" for row in rows]
        (inner / f"new_aan_pairs.{name}.tsv").write_bytes(b"".join(lines))
    (folder / "lra_release" / "listops-1000").mkdir()
    (folder / "lra_release" / "listops-1000" / "basic_test.tsv").write_text("of no use")
    archive = replace(pack(folder), size=0, digest="unpublished")
    real = Retrieval.source().editions[0]
    edition = replace(real, archives=(archive,))
    return Packed(folder.parent, source([edition], {}, dict(SMALL)), PAIRS)


@pytest.fixture
def read(papers):
    """Loads a split of the imported pairs, and reads the bytes of its documents back."""
    Retrieval.bring(papers.folder, papers.source)

    def load(name: str, **options):
        split = Retrieval(**SMALL | options).load(name)
        texts = [
            bytes(token - 1 for token in row[:length].tolist())
            for row, length in zip(split.sequences, split.lengths.tolist(), strict=True)
        ]
        return split, [(texts[left], texts[right]) for left, right in split.sequence_ids.tolist()]

    return load


@pytest.mark.parametrize("name", ["train", "dev", "test"])
def test_every_pair_comes_out_byte_for_byte_in_its_order(read, name):
    split, pairs = read(name)
    expected = PAIRS["eval" if name == "dev" else name]
    assert pairs == [(left[:4000], right[:4000]) for *_, left, right in expected]
    assert split.targets.tolist() == [int(float(row[0])) for row in expected]


def test_each_document_is_stored_once_and_only_in_the_splits_that_show_it(read):
    split, _ = read("train")
    assert split.sequence_ids.shape == (4, 2)
    assert len(split.sequences) == 4  # eight texts stand in the file
    assert len(torch.unique(split.sequences, dim=0)) == 4
    assert [len(read(name)[0].sequences) for name in ("dev", "test")] == [2, 2]


def test_a_batch_shows_two_padded_documents_an_example(read):
    split, _ = read("train")
    batch = split.gather(torch.tensor([1, 3]))
    assert batch.tokens.shape == (2, 2, 4000)
    assert batch.mask is not None
    assert batch.mask.sum(-1).tolist() == [[5, 19], [4000, 16]]
    # "café", the accent two bytes.
    assert batch.tokens[0, 0, :6].tolist() == [100, 98, 103, 196, 170, 0]


def test_a_literal_is_read_as_it_is_written(read):
    _, pairs = read("test")
    assert pairs[0][0] == rb"b'caf\xc3\xa9\n'"


def test_documents_are_cut_where_asked_and_kept_to_ten_thousand_bytes(read):
    assert read("test", max_len=9)[1] == [(rb"b'caf\xc3", b"x" * 9)]
    assert [len(text) for text in read("test", max_len=10_000)[1][0]] == [16, 10_000]


def test_texts_that_differ_only_behind_what_is_kept_are_one_document(papers):
    inner = papers.folder / "lra_release/lra_release/tsv_data/new_aan_pairs.eval.tsv"
    inner.write_bytes(b"0.0\tE\tF\t" + LONG + b"\t" + LONG + b" and more\n")
    Retrieval.bring(papers.folder / "lra_release", papers.source)
    dev = Retrieval(**SMALL).load("dev")
    assert (len(dev.sequences), dev.sequence_ids.tolist()) == (1, [[0, 0]])
    (ends,) = Retrieval(**SMALL).arrays(["ends"])
    assert np.diff(ends, prepend=0).tolist() == [16, 5, 19, 10_000]


def test_documents_that_fill_their_length_need_no_padding(read):
    assert not read("train", max_len=5)[0].padded
    assert read("train", max_len=6)[0].padded


def test_fewer_pairs_are_some_of_all(read):
    split, pairs = read("train", train=2)
    assert split.targets.tolist() == [1, 1]  # those of the first two pairs are 1 and 0
    assert pairs == [read("train")[1][0], read("train")[1][2]]
    with pytest.raises(UserError, match=r"retrieval.train=5 is out of range; give 1 to 4"):
        read("train", train=5)


@pytest.mark.parametrize(
    "given",
    ["", "lra_release", "lra_release/lra_release/tsv_data", "lra_release.tar.gz"],
)
def test_the_release_may_be_given_at_any_level_or_packed(papers, given, home):
    good = Retrieval.bring(papers.folder, papers.source)
    assert Retrieval.bring(papers.folder / given, papers.source) == good
    assert len(list(home.iterdir())) == 1


def test_what_stands_behind_the_pairs_in_an_archive_is_not_even_read(papers):
    folder = papers.folder / "lra_release"
    good = Retrieval.bring(folder, papers.source)
    (folder / "of-no-use").write_bytes(np.random.default_rng(0).bytes(2**20))
    pack(folder)
    path = papers.folder / "lra_release.tar.gz"
    path.write_bytes(path.read_bytes()[: -(2**19)])
    assert Retrieval.bring(path, papers.source) == good


def test_a_windows_line_end_is_no_part_of_a_text(papers):
    good = Retrieval.bring(papers.folder, papers.source)
    path = papers.folder / "lra_release/lra_release/tsv_data/new_aan_pairs.eval.tsv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert Retrieval.bring(papers.folder / "lra_release", papers.source) == good


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"0.0\tA\tB\tonly one text", r"has 4 columns, 5 expected \(label, id1, id2, text1, text2"),
        (b"0.0\tA\tB\tone\ttwo\tthree", "has 6 columns, 5 expected"),
        (b"", "has 1 columns, 5 expected"),
        (b"label\tid1\tid2\ttext1\ttext2", "has the label 'label', not 0.0 or 1.0"),
        (b"2.0\tA\tB\tone\ttwo", "has the label '2.0'"),
        (b"nan\tA\tB\tone\ttwo", "has the label 'nan'"),
        (b"\tA\tB\tone\ttwo", "has the label ''"),
        (b"1.0\tA\tB\tcaf\xe9\ttwo", "is not UTF-8 at byte 11"),
        (b"1.0\tA\tB\t\ttwo", "has an empty text"),
        (b"1.0\tA\tB\tone\t", "has an empty text"),
    ],
)
def test_a_bad_line_is_refused_by_file_and_number(papers, home, line, message):
    path = papers.folder / "lra_release/lra_release/tsv_data/new_aan_pairs.train.tsv"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line, *lines[3:]]) + b"\n")
    with pytest.raises(UserError, match=rf"{path}, line 3 {message}.*; get it again"):
        Retrieval.bring(papers.folder, papers.source)
    assert not home.exists()


def test_a_bad_line_in_an_archive_is_named_too(papers, tmp_path):
    folder = papers.folder / "lra_release"
    inner = folder / "lra_release/tsv_data/new_aan_pairs.eval.tsv"
    inner.write_bytes(b"1\n")
    pack(folder)
    with pytest.raises(
        UserError, match=r"lra_release.tar.gz:.*pairs.eval.tsv, line 1 has 1 columns"
    ):
        Retrieval.bring(folder.parent / "lra_release.tar.gz", papers.source)


def test_a_file_with_too_few_pairs_is_refused(papers, home):
    short = replace(papers.source, rows=SMALL | {"dev": 2})
    with pytest.raises(UserError, match=r"new_aan_pairs.eval.tsv holds 1 pairs, 2 expected"):
        Retrieval.bring(papers.folder, short)
    assert not home.exists()


def test_a_missing_file_is_refused(papers, home):
    (papers.folder / "lra_release/lra_release/tsv_data/new_aan_pairs.test.tsv").unlink()
    with pytest.raises(UserError, match=r"tsv_data holds no new_aan_pairs.test.tsv; get it"):
        Retrieval.bring(papers.folder / "lra_release", papers.source)
    assert not home.exists()


@pytest.mark.parametrize("max_len", [0, 10_001])
def test_a_length_out_of_range_is_refused(max_len):
    with pytest.raises(UserError, match=rf"retrieval.max_len={max_len} is out of range; give 1 to"):
        Retrieval(max_len=max_len)
    assert resolve("retrieval", Retrieval, {"max_len": "12"})["max_len"] == 12


def test_missing_pairs_are_refused_with_the_official_archive_and_where_it_is():
    with pytest.raises(UserError) as refused:
        Retrieval().load("test")
    message = str(refused.value)
    assert "run 'harness data import retrieval PATH' with the folder of lra_release" in message
    assert "https://storage.googleapis.com/long-range-arena/lra_release.gz" in message
    assert "fetch" not in message and "\n" not in message


def test_every_official_file_is_known_and_none_has_a_made_up_digest():
    (edition,) = Retrieval.source().editions
    assert isinstance(edition, Edition)
    assert edition.files == tuple(
        File(name=f"new_aan_pairs.{name}.tsv") for name in ("train", "eval", "test")
    )
    assert Retrieval().key == "retrieval@1"
    assert np.sum(list(Retrieval.source().rows.values())) == 182_613


def test_by_default_every_published_pair_is_used():
    assert Retrieval().options == {"max_len": 4000, **Retrieval.source().rows}
