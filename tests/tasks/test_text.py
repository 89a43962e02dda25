"""Text: the bytes of a review are its tokens, truncated and padded."""

import json
import lzma

import pytest

from tasks.data.sources import import_data
from tasks.lra.text import REVIEW_LIMIT, Text
from tests.tasks.conftest import change, change_layout, file_entry
from zoo.registry import UserError

SMALL = {"train": 36, "dev": 4, "test": 6}  # all of the small data set


@pytest.fixture
def imported(reviews):
    Text.import_files(reviews.folder, reviews.source)
    return reviews


def text_of(split, example: int) -> bytes:
    length = int(split.lengths[example])
    return bytes(token - 1 for token in split.sequences[example, :length].tolist())


def test_every_review_is_loaded_byte_for_byte_in_its_order(imported):
    split = Text(**SMALL).load("test")
    expected = imported.content["test.jsonl.xz"]
    assert [text_of(split, i) for i in range(6)] == [row["text"].encode() for row in expected]
    assert split.targets.tolist() == [row["label"] for row in expected] == [0, 0, 0, 1, 1, 1]


def test_a_token_is_its_byte_plus_one_and_padding_is_zero(imported):
    split = Text(**SMALL).load("test")
    # "test 0 0: café<br />", the accent two bytes.
    start = [117, 102, 116, 117, 33, 49, 33, 49, 59, 33, 100, 98, 103, 196, 170, 61]
    assert split.sequences[0, :16].tolist() == start
    assert split.lengths[0] == 21 and split.sequences[0, 21:].eq(0).all() and split.padded


def test_a_long_review_is_truncated_at_a_byte_also_within_a_character(imported, home):
    full, truncated = Text(**SMALL).load("test"), Text(max_len=14, **SMALL).load("test")
    assert truncated.sequences.shape == (6, 14) and not truncated.padded
    assert text_of(truncated, 0) == text_of(full, 0)[:14]
    with pytest.raises(UnicodeDecodeError):
        text_of(truncated, 0).decode()
    assert len(list(home.iterdir())) == 1  # one import for every length


def test_train_and_dev_partition_the_official_train_reviews(imported):
    splits = {name: Text(**SMALL).load(name) for name in ("train", "dev")}
    texts = [text_of(split, i) for split in splits.values() for i in range(len(split))]
    assert sorted(texts) == sorted(
        row["text"].encode() for row in imported.content["train.jsonl.xz"]
    )
    for name, each in (("train", 18), ("dev", 2)):
        split = splits[name]
        assert split.targets.bincount().tolist() == [each, each]
        classes = [int(text_of(split, i).split()[1]) for i in range(len(split))]
        assert classes == split.targets.tolist()


def test_reviews_that_occur_more_than_once_are_never_in_train_and_dev(reviews):
    rows = reviews.content["train.jsonl.xz"]
    # Every second one of both classes: without the rule some are in dev.
    repeated = [{**row, "text": f"copy {i // 4}"} if i % 2 else row for i, row in enumerate(rows)]
    source = repack(reviews, "train.jsonl.xz", repeated)
    Text.import_files(reviews.folder, change(source, arrays={}))
    splits = [Text(**SMALL).load(name) for name in ("train", "dev")]
    train, dev = ({text_of(split, i) for i in range(len(split))} for split in splits)
    assert len(dev) == 4 and not train & dev
    assert not any(text.startswith(b"copy") for text in dev)


def test_fewer_reviews_keep_both_classes(imported):
    few = Text(train=10, dev=2, test=4)
    counts = [few.load(name).targets.bincount().tolist() for name in ("train", "dev", "test")]
    assert counts == [[5, 5], [1, 1], [2, 2]]
    for count in (0, 5):
        with pytest.raises(UserError, match=rf"text.dev={count} is out of range; give 1 to 4"):
            Text(**SMALL | {"dev": count}).load("dev")


def test_the_highest_byte_of_utf8_has_a_token(reviews):
    row = {"id": 0, "rating": 1, "label": 0, "text": "\U0010ffff"}
    for name in ("train.jsonl.xz", "test.jsonl.xz"):
        source = repack(reviews, name, [row, {**row, "label": 1}])
    Text.import_files(reviews.folder, change(source, examples={"train": 2, "test": 2}, arrays={}))
    tokens = Text(max_len=4, train=1, dev=1, test=2).load("test").sequences[0]
    assert tokens.tolist() == [0xF5, 0x90, 0xC0, 0xC0]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (lambda r: r[1:], r"packed contains 5 examples in test, 6 expected; get it again"),
        (lambda r: [{**r[0], "label": 1}, *r[1:]], "test_targets made from .* has SHA256"),
        (lambda r: [{**r[0], "label": 2}, *r[1:]], "test_targets made from .* has SHA256"),
        (lambda r: [{**r[0], "text": ""}, *r[1:]], "test_values made from .* has SHA256"),
        (lambda r: [{**r[0], "text": "Other."}, *r[1:]], r"test_values made from .* has SHA256"),
        (lambda r: [{"label": 0}, *r[1:]], "cannot be decoded .KeyError"),
        (lambda r: [{**r[0], "text": None}, *r[1:]], "cannot be decoded .AttributeError"),
        (lambda r: [[], *r[1:]], "cannot be decoded .TypeError"),
    ],
)
def test_unexpected_content_is_an_error(reviews, home, rows, message):
    changed = repack(reviews, "test.jsonl.xz", rows(reviews.content["test.jsonl.xz"]))
    with pytest.raises(UserError, match=message):
        Text.import_files(reviews.folder, changed)
    assert not home.exists()


def repack(reviews, name, rows):
    """Write other reviews to a file; the source that describes it."""
    raw = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (reviews.folder / name).write_bytes(lzma.compress(raw))
    files = tuple(
        file_entry(reviews.folder / file.name) for file in reviews.source.layouts[0].files
    )
    return change_layout(reviews.source, files=files)


@pytest.mark.parametrize("path", ["", "aclImdb", "aclImdb.tar.gz"])
def test_the_official_folder_gives_the_same_data_as_the_repacked_files(reviews, acl, path):
    repacked = Text.import_files(reviews.folder, reviews.source)
    content = repacked.read_bytes()
    repacked.unlink()
    (acl.folder / "aclImdb/test/neg/.DS_Store").write_bytes(b"\xff")  # of a file manager
    assert Text.import_files(acl.folder / path, acl.source).read_bytes() == content


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test/neg/3_7.txt", b"fine", r"contains 7 examples in test, 6 expected"),
        ("test/pos/3.txt", b"fine", r"test.pos.3.txt is not named NUMBER_RATING.txt"),
        ("test/neg/0_2.txt", b"caf\xe9", r"test_values made from .* has SHA256"),
        ("train/neg/20_1.txt", b"fine", r"contains 41 examples in train, 40 expected"),
        ("test/neg/0_2.txt", b"", r"test_values made from .* has SHA256"),
        ("test/neg/0_2.txt", b"x" * (REVIEW_LIMIT + 1), r"0_2.txt has more than 1048576 bytes"),
    ],
)
def test_a_changed_official_folder_is_an_error(acl, home, name, content, message):
    (acl.folder / "aclImdb" / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        Text.import_files(acl.folder / "aclImdb", acl.source)
    assert not home.exists()


def test_a_length_below_one_is_an_error():
    with pytest.raises(UserError, match=r"text.max_len=0 must be at least 1"):
        Text(max_len=0)


@pytest.mark.slow
def test_the_real_reviews_are_complete(real_data):
    import_data("text", real_data)
    splits = {name: Text().load(name) for name in ("train", "dev", "test")}
    for name, each in (("train", 11250), ("dev", 1250), ("test", 12500)):
        assert splits[name].targets.bincount().tolist() == [each, each]
    # Reviews of more than 4,000 bytes: 792 of the official train set, 718 of test.
    longer = {name: int((Text(max_len=4001).load(name).lengths > 4000).sum()) for name in splits}
    assert (longer["train"] + longer["dev"], longer["test"]) == (792, 718)
    assert max(int(split.sequences.max()) for split in splits.values()) <= 0xF5 < Text.vocabulary
