"""Text: bytes in, the same bytes out, cut and padded."""

import json
import lzma
from dataclasses import replace

import pytest

from tasks.data.sources import import_data
from tasks.lra.text import Text
from tests.tasks.conftest import facts
from zoo.registry import UserError, resolve

SMALL = {"train": 36, "dev": 4, "test": 6}  # all that the small archive holds


@pytest.fixture
def imported(reviews):
    Text.bring(reviews.folder, reviews.source)
    return reviews


def read(split, example: int) -> bytes:
    """The bytes that an example shows."""
    length = int(split.lengths[example])
    return bytes(token - 1 for token in split.sequences[example, :length].tolist())


def test_every_review_comes_out_byte_for_byte_in_its_order(imported):
    split = Text(**SMALL).load("test")
    expected = imported.put["test.jsonl.xz"]
    assert [read(split, i) for i in range(6)] == [row["text"].encode() for row in expected]
    assert split.targets.tolist() == [row["label"] for row in expected] == [0, 0, 0, 1, 1, 1]


def test_a_token_is_its_byte_and_one_and_padding_is_zero(imported):
    split = Text(**SMALL).load("test")
    # "test 0 0: café<br />", the accent two bytes.
    start = [117, 102, 116, 117, 33, 49, 33, 49, 59, 33, 100, 98, 103, 196, 170, 61]
    assert split.sequences[0, :16].tolist() == start
    assert split.lengths[0] == 21
    assert split.sequences[0, 21:].eq(0).all()
    assert split.padded


def test_a_long_review_is_cut_at_the_byte_also_inside_a_character(imported):
    whole, cut = Text(**SMALL).load("test"), Text(max_len=14, **SMALL).load("test")
    assert cut.sequences.shape == (6, 14)
    assert read(cut, 0) == read(whole, 0)[:14]
    with pytest.raises(UnicodeDecodeError):
        read(cut, 0).decode()
    assert not cut.padded


def test_train_and_dev_part_the_official_train_reviews(imported):
    train, dev = Text(**SMALL).load("train"), Text(**SMALL).load("dev")
    found = [read(split, i) for split in (train, dev) for i in range(len(split))]
    assert sorted(found) == sorted(row["text"].encode() for row in imported.put["train.jsonl.xz"])
    assert (len(train), len(dev)) == (36, 4)


def test_train_and_dev_are_balanced_and_keep_their_classes(imported):
    for name, each in (("train", 18), ("dev", 2)):
        split = Text(**SMALL).load(name)
        assert split.targets.bincount().tolist() == [each, each]
        assert [int(read(split, i).split()[1]) for i in range(len(split))] == split.targets.tolist()


def test_one_import_serves_every_length(imported, home):
    assert Text(max_len=9, **SMALL).load("dev").sequences.shape == (4, 9)
    assert Text(max_len=90, **SMALL).load("dev").sequences.shape == (4, 90)
    assert len(list(home.iterdir())) == 1


def test_the_highest_byte_of_utf8_has_a_token(reviews):
    row = {"id": 0, "rating": 1, "label": 0, "text": "\U0010ffff"}
    rows = [row, {**row, "label": 1}]
    for name in ("train.jsonl.xz", "test.jsonl.xz"):
        known = repacked(reviews, name, rows)
    counted = replace(known, rows={"train": 2, "test": 2}, arrays={})
    Text.bring(reviews.folder, counted)
    assert Text(max_len=4, train=1, dev=1, test=2).load("test").sequences[0].tolist() == [
        0xF5,
        0x90,
        0xC0,
        0xC0,
    ]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda rows: rows[1:],
            r"packed holds 5 reviews in test, 2 bad and 3 good; 6, 3 of each, expected",
        ),
        (
            lambda rows: [{**rows[0], "label": 1}, *rows[1:]],
            "holds 6 reviews .* 2 bad and 4 good",
        ),
        (
            lambda rows: [{**rows[0], "label": 2}, *rows[1:]],
            r"holds 6 reviews in test, 2 bad and 3 good",
        ),
        (
            lambda rows: [{**rows[0], "text": ""}, *rows[1:]],
            "review 0 of test in .*packed is empty",
        ),
        (lambda rows: [{"label": 0}, *rows[1:]], "cannot be decoded .KeyError"),
        (lambda rows: [{**rows[0], "text": None}, *rows[1:]], "cannot be decoded .AttributeError"),
        (lambda rows: [[], *rows[1:]], "cannot be decoded .TypeError"),
    ],
)
def test_unexpected_contents_are_refused_though_the_file_is_the_known_one(
    reviews, home, spoil, message
):
    rows = spoil(reviews.put["test.jsonl.xz"])
    with pytest.raises(UserError, match=message):
        Text.bring(reviews.folder, repacked(reviews, "test.jsonl.xz", rows))
    assert not home.exists()


def test_reviews_other_than_the_known_ones_are_refused_whatever_file_they_are_in(reviews, home):
    rows = reviews.put["test.jsonl.xz"]
    changed = [{**rows[0], "text": "Another one."}, *rows[1:]]
    known = repacked(reviews, "test.jsonl.xz", changed)
    with pytest.raises(UserError, match=r"test_values made of .* has SHA256 .* expected"):
        Text.bring(reviews.folder, known)
    assert not home.exists()


def repacked(reviews, name, rows):
    """Put other reviews in a file, and return facts about the files that agree with it."""
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (reviews.folder / name).write_bytes(lzma.compress(raw))
    edition = reviews.source.editions[0]
    files = tuple(facts(reviews.folder / file.name) for file in edition.files)
    return replace(reviews.source, editions=(replace(edition, files=files),))


@pytest.mark.parametrize("given", ["", "aclImdb", "aclImdb.tar.gz"])
def test_the_official_folder_gives_the_same_data_as_the_repacked_files(reviews, acl, given, home):
    repacked_files = Text.bring(reviews.folder, reviews.source)
    good = repacked_files.read_bytes()
    repacked_files.unlink()
    assert Text.bring(acl.folder / given, acl.source).read_bytes() == good


def test_reviews_stand_in_order_of_their_numbers_not_of_their_names(acl):
    Text.bring(acl.folder, acl.source)
    split = Text(train=36, dev=4, test=6).load("train")
    numbers = [int(read(split, i).split()[2][:-1]) for i in range(len(split))]
    # As text 10 would come before 9.
    assert numbers[:18] == sorted(numbers[:18]) and numbers[18:] == sorted(numbers[18:])


@pytest.mark.parametrize(
    ("place", "content", "message"),
    [
        ("test/neg/3_7.txt", b"fine", r"test.neg.3_7.txt is not named NUMBER_RATING.txt"),
        ("test/pos/3.txt", b"fine", r"test.pos.3.txt is not named NUMBER_RATING.txt"),
        ("train/pos/20_9.txt", b"caf\xe9", r"train.pos.20_9.txt is not UTF-8 at byte 3"),
        ("train/neg/20_1.txt", b"fine", r"aclImdb holds 41 reviews in train, 21 bad and 20 good"),
        ("test/neg/0_2.txt", b"", r"review 0 of test in .* is empty"),
        ("test/neg/0_2.txt", b"fine", r"test_values made of .* has SHA256 .* expected"),
    ],
)
def test_an_official_folder_that_was_tampered_with_is_refused(acl, home, place, content, message):
    (acl.folder / "aclImdb" / place).write_bytes(content)
    with pytest.raises(UserError, match=message):
        Text.bring(acl.folder / "aclImdb", acl.source)
    assert not home.exists()


def test_an_official_folder_without_one_of_its_parts_is_refused(acl, home):
    for path in (acl.folder / "aclImdb/test/pos").iterdir():
        path.unlink()
    (acl.folder / "aclImdb/test/pos").rmdir()
    with pytest.raises(UserError, match=r"aclImdb holds no test/pos; get it again"):
        Text.bring(acl.folder / "aclImdb", acl.source)
    assert not home.exists()


def test_what_a_file_manager_leaves_in_a_folder_is_passed_over(acl):
    (acl.folder / "aclImdb/test/neg/.DS_Store").write_bytes(b"\xff")
    Text.bring(acl.folder / "aclImdb", acl.source)


def test_a_length_below_one_is_refused():
    with pytest.raises(UserError, match=r"text.max_len=0 must be at least 1"):
        Text(max_len=0)
    assert resolve("text", Text, {"max_len": "12"})["max_len"] == 12


def test_missing_reviews_are_refused_with_the_command_and_the_public_original():
    with pytest.raises(
        UserError,
        match=r"run 'harness data fetch text', or '.* import text PATH' .*aclImdb.*https:",
    ):
        Text().load("train")


def test_the_real_reviews_are_imported_whole(real_data):
    import_data("text", real_data)
    splits = {name: Text().load(name) for name in ("train", "dev", "test")}
    for name, each in (("train", 11250), ("dev", 1250), ("test", 12500)):
        assert splits[name].targets.bincount().tolist() == [each, each]
    # Reviews of more than 4,000 bytes: 792 of the official train set, 718 of test.
    cut = {name: int((Text(max_len=4001).load(name).lengths > 4000).sum()) for name in splits}
    assert (cut["train"] + cut["dev"], cut["test"]) == (792, 718)
    assert max(int(split.sequences.max()) for split in splits.values()) <= 0xF5 < Text.vocabulary


def test_fewer_reviews_are_spread_over_both_classes(home, reviews):
    Text.bring(reviews.folder, reviews.source)
    few = Text(train=10, dev=2, test=4)
    assert [few.load(name).targets.bincount().tolist() for name in ("train", "dev", "test")] == [
        [5, 5],
        [1, 1],
        [2, 2],
    ]
    assert few.key == "text@1[train=10,dev=2,test=4]"


def test_more_reviews_than_there_are_or_none_are_refused(home, reviews):
    Text.bring(reviews.folder, reviews.source)
    for count in (0, 5):
        with pytest.raises(UserError, match=rf"text.dev={count} is out of range; give 1 to 4"):
            Text(**SMALL | {"dev": count}).load("dev")
