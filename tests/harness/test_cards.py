"""The task page says what the data are, and shows some."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as Pictures

from harness.cards import page, pictures
from harness.facts import Facts, gather, settings
from harness.pictures import png, sheet
from tasks import Task
from tasks.registry import tasks
from tasks.contract import SPLITS, Split
from tasks.data import cache
from tasks.lra.image import Image

SIZES = {"train": 5, "dev": 2, "test": 3}


class Squares(Task):
    """Pictures that get brighter."""

    name, version = "squares", 3
    classes, vocabulary, max_len, pictures = 2, 256, 4, True

    def class_name(self, target: int) -> str:
        return ("dark", "bright")[target]

    def load(self, split):
        count = SIZES[split]
        levels = torch.arange(4 * count, dtype=torch.uint8).reshape(count, 4)
        return Split.single(levels, torch.full((count,), 4), torch.arange(count) % 2)


class Unclear(Squares):
    """Text that would end a block, or a line of the page."""

    name, pictures = "unclear", False

    def show(self, split, example):
        return ["one\n\n```\n<br />\x07 | two", "word " * 1000][example % 2 :][:1]


def facts(name: str) -> Facts:
    return gather(tasks.find(name)(**SIZES), generate=False)


def tables(text: str) -> dict[str, list[str]]:
    """The cells of every row by its first cells, those of the split if it is one of a split."""
    lines = (line for line in text.splitlines() if line.startswith("|"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    found: dict[str, list[str]] = {}
    for first, *rest in rows:
        split = rest[0] in SPLITS if rest else False
        found.setdefault(f"{first} {rest[0]}" if split else first, []).extend(rest[split:])
    return found


def pixels(content: bytes) -> np.ndarray:
    return np.array(Pictures.open(io.BytesIO(content)))


def test_a_card_holds_the_sizes_lengths_shares_and_digests_of_every_split():
    found = tables(page([[facts("majority")]], "tasks"))
    key = "`majority@1[train=5,dev=2,test=3]`"
    task = tasks.find("majority")(**SIZES)
    for name in SPLITS:
        split = task.load(name)
        ones = 100 * split.targets.double().mean().item()
        assert found[f"{key} {name}"] == [
            *[str(SIZES[name])] * 2, "64", "64.0", "64.0", "64", f"`{split.digest()}`",
            f"{100 - ones:.2f} %", f"{ones:.2f} %",
        ]  # fmt: skip
    assert found["version"] == ["`majority@1`"]
    assert found["options"][0].startswith("`max_len=64`, `symbols=2`, `train=5`")
    assert found["answer"] == ["one of 2 classes, for the whole"]
    assert found["token values"] == ["3"]
    assert found[key][0] == "0 of 3"
    assert len(found[key]) == 5  # repeated documents and floors


def test_floors_stand_in_percent_beside_their_own_setting():
    parity = tasks.find("parity")
    card = [gather(parity(symbols=symbols, **SIZES), generate=False) for symbols in (2, 4)]
    found = tables(page([card], "tasks"))
    assert [found[f"`{one.task.key}`"][1] for one in card] == ["50.0 %", "25.0 %"]


def test_lengths_are_of_real_tokens():
    class Short(Unclear):
        def load(self, split):
            found = super().load(split)
            lengths = torch.arange(1, len(found) + 1).clamp(max=4)
            return Split.single(found.sequences, lengths, found.targets)

    spread = gather(Short(), generate=False).parts["train"].lengths
    assert spread == (1.0, 3.0, (1 + 2 + 3 + 4 + 4) / 5, 4.0)


def test_documents_of_test_that_stand_in_train_are_counted():
    class CachedTask(Unclear):
        def load(self, split):
            found = super().load(split)
            if split == "test":
                # The same but for what stands behind its end, another length, another token.
                found.sequences[0, 3] = 99
                found.sequences[2, 0] = 99
                lengths = torch.tensor([3, 4, 3])
            else:
                lengths = torch.full((len(found),), 3)
            return Split.single(found.sequences.short(), lengths, found.targets)

    assert gather(Squares(), generate=False).repeated == 3
    facts = gather(CachedTask(), generate=False)
    assert facts.repeated == 1
    assert tables(page([[facts]], "tasks"))["`unclear@3`"][0] == "1 of 3"


def test_documents_are_counted_where_an_example_has_two():
    one = facts("majority")
    test = one.parts["test"]._replace(sequences=7)
    found = tables(page([[one._replace(parts={**one.parts, "test": test}, repeated=2)]], "tasks"))
    assert found[f"`{one.task.key}`"][0] == "2 of 7"


def test_numbers_have_a_mean_and_a_spread_and_many_classes_a_rarest_one():
    text = page([[facts("adding")], [facts("mqar")]], "tasks")
    targets = tasks.find("adding")(**SIZES).load("train").targets
    cells = tables(text)["`adding@1[train=5,dev=2,test=3]` train"]
    assert cells[-2:] == [f"{targets.mean():.3f}", f"{targets.std(correction=0):.3f}"]
    assert "a number, right where it is less than 0.04 off, for the whole" in text
    assert "one of 4,096 classes, at each of 8 positions" in text
    assert tables(text)["`mqar@2[train=5,dev=2,test=3]` train"][-3:] == ["40", "0.00 %", "2.50 %"]


def test_an_example_stands_with_its_answer():
    text = page([[facts("copying")]], "tasks")
    task = tasks.find("copying")(**SIZES)
    split = task.load("train")
    for example in range(3):
        answers = [f"s{target}" for target in split.targets[example].tolist()]
        where = ", ".join(f"{one} at {at}" for at, one in enumerate(answers, 112))
        shown = f"{' '.join(answers)} blank"
        assert f"**Example {example + 1}**, answer: {where}\n\n    {shown}" in text
    assert "Example 4" not in text


def test_a_picture_is_a_file_four_times_as_large():
    card = [gather(Squares(), generate=False)]
    text, files = page([card], "tasks"), pictures([card])
    assert list(files) == [*(f"squares-{number}.png" for number in (1, 2, 3)), "squares.png"]
    assert "**Example 2**, answer: bright\n\n![squares, example 2](tasks/squares-2.png)\n" in text
    shown = pixels(files["squares-2.png"])
    assert shown.shape == (8, 8)
    assert np.array_equal(shown, np.kron([[4, 5], [6, 7]], np.ones((4, 4))))
    assert files["squares-1.png"] == png([0, 1, 2, 3])


def test_a_sheet_shows_the_first_pictures_of_train_row_by_row_with_their_answers():
    class Many(Squares):
        def load(self, split):
            levels = torch.arange(4 * 20, dtype=torch.uint8).reshape(20, 4)
            return Split.single(levels, torch.full((20,), 4), torch.arange(20) % 2)

    card = [gather(Many(), generate=False)]
    answers = "; ".join(["dark", "bright"] * 9)
    assert f"**Sheet**, answers: {answers}\n\n![squares, sheet](tasks/squares.png)" in page(
        [card], "tasks"
    )
    shown = pixels(pictures([card])["squares.png"])[::4, ::4]
    assert shown.shape == (3 * 2, 6 * 2)
    # The eighth picture is the second of the second row.
    assert np.array_equal(shown[2:4, 2:4], [[28, 29], [30, 31]])


def test_the_last_row_of_a_sheet_is_filled_up_with_black():
    shown = pixels(sheet([[9, 9, 9, 9]] * 7))[::4, ::4]
    assert shown.shape == (4, 12)
    assert (shown[2:, :2] == 9).all() and not shown[2:, 2:].any()


def test_a_document_of_two_pictures_has_a_file_for_each():
    class Pairs(Squares):
        def load(self, split):
            found = super().load(split)
            firsts = torch.arange(len(found) - 1)
            rows = torch.stack([firsts, torch.zeros_like(firsts)], 1).int()
            return Split(found.sequences, found.lengths, rows, found.targets[1:], padded=False)

    card = [gather(Pairs(), generate=False)]
    files = pictures([card])
    assert card[0].parts["train"][:2] == (4, 5)
    assert list(files)[2:4] == ["squares-2-1.png", "squares-2-2.png"]
    assert np.array_equal(pixels(files["squares-3-2.png"])[::4, ::4], [[0, 1], [2, 3]])
    assert all(f"(there/{name})" in page([card], "there") for name in files)


def test_nothing_in_a_document_ends_its_block_and_a_long_one_loses_its_middle():
    text = page([[gather(Unclear(), generate=False)]], "tasks")
    block = text.split("**Example 1**, answer: dark\n\n")[1].split("\n\n**Example 2**")[0]
    assert block == "    one  ``` <br />\N{REPLACEMENT CHARACTER} | two"
    block = text.split("**Example 2**, answer: bright\n\n")[1].split("\n\n**Example 3**")[0]
    assert all(line.startswith("    word") and len(line) <= 96 for line in block.splitlines()[:3])
    # Of 5,000 characters 140 words stay at the beginning, 59 and their blanks at the end.
    assert "word … 4,006 characters left out … word" in " ".join(block.split())


@pytest.mark.parametrize("name", ["image", "listops"])
def test_a_card_whose_data_are_missing_says_how_to_get_them(name, call, monkeypatch, tmp_path):
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    card = [gather(task, generate=False) for task in settings(name)]
    assert [one.parts for one in card] == [{}, {}] and not list(tmp_path.iterdir())
    text = page([card], "tasks")
    keys = ", ".join(f"`{one.task.key}`" for one in card)
    (line,) = [one for one in call("data", "list")[1].splitlines() if one.startswith(f"{name}:")]
    assert f"\n{keys}{line.removeprefix(name)}\n" in text
    assert "SHA-256 " not in text and "Example 1" not in text
    assert str(tmp_path) not in text


def test_the_setting_that_is_there_stands_beside_the_one_that_is_missing():
    usual, laptop = (gather(Image(), generate=False), gather(Squares(), generate=False))
    text = page([[usual, laptop]], "tasks")
    assert "`image@1`: missing; run 'harness data fetch image'" in text
    assert tables(text)["`squares@3` dev"][:2] == ["2", "2"]
    assert "squares-1.png" in text


def test_terms_and_origin_of_real_data_stand_on_their_card():
    source = Image.source()
    found = tables(page([[gather(Image(), generate=False)]], "tasks"))
    assert found["origin"] == [f"<{source.origin}>"]
    assert found["terms"] == [source.terms]


def test_the_same_data_make_the_same_page_to_the_byte():
    def made() -> bytes:
        cards = [[facts("parity")], [gather(Squares(), generate=False)]]
        files = b"".join(pictures(cards).values())
        return hashlib.sha256(page(cards, "tasks").encode() + files).digest()

    assert made() == made()


TREES = {"min_len": 2, "max_len": 24, "train": 4, "dev": 2, "test": 2}


@pytest.fixture
def few(monkeypatch, tmp_path) -> Path:
    """Three tasks of all there are, small, and an empty cache; the page to write."""
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "cache"))
    known = {"image": Image(), "listops": tasks.find("listops")(**TREES), "squares": Squares()}
    monkeypatch.setattr(tasks, "items", lambda: list(known.items()))
    monkeypatch.setattr("harness.facts.settings", lambda name: [known[name]])
    return tmp_path / "docs" / "cards.md"


def test_the_command_writes_the_page_and_its_pictures_and_generates_what_it_can(call, few):
    code, out, err = call("cards", "--out", str(few))
    assert (code, err) == (0, "")
    assert sorted(path.name for path in few.parent.rglob("*.*")) == [
        "cards.md", "squares-1.png", "squares-2.png", "squares-3.png", "squares.png",
    ]  # fmt: skip
    text = few.read_text("utf-8")
    assert "(cards/squares-1.png)" in text and (few.parent / "cards" / "squares-1.png").is_file()
    assert "`image@1`: missing" in text and "listops@1[min_len=2" in text
    assert out.splitlines()[-1] == str(few) and "squares@3: read" in out
    assert not gather(tasks.find("listops")(**TREES), generate=False).missing


def test_the_command_generates_nothing_where_it_is_told_so(call, few):
    assert call("cards", "--no-generate", "--out", str(few))[0] == 0
    assert "train=4,dev=2,test=2]`: missing; run the task: its data are" in few.read_text("utf-8")
    assert not list(cache.data_home().glob("listops*"))


def test_a_page_that_cannot_be_written_is_refused(call, few):
    few.mkdir(parents=True)
    code, _, err = call("cards", "--out", str(few))
    assert (code, err.count("\n")) == (2, 1)
    assert err == f"harness: {few} cannot be written (it is a folder); give another --out\n"


@pytest.mark.parametrize("out", ["", ".", "/"])
def test_a_page_of_no_name_is_refused(call, out):
    code, said, err = call("cards", "--out", out)
    assert (code, said, err.count("\n")) == (2, "", 1)
    assert err.startswith("harness: --out ") and "has no suffix" in err


@pytest.mark.parametrize("taken", [False, True])
def test_a_page_whose_pictures_have_no_place_is_refused_before_the_work(call, few, taken, tmp_path):
    out = few if taken else few.with_suffix("")
    if taken:
        few.parent.mkdir()
        few.with_suffix("").write_text("a file")
    before = sorted(tmp_path.rglob("*"))
    code, said, err = call("cards", "--out", str(out))
    assert (code, said) == (2, "")
    (line,) = err.splitlines()
    beside = few.with_suffix("")
    assert line.startswith(
        f"harness: {beside} cannot be written ({beside} is a file); give another --out"
        if taken
        else f"harness: --out {str(out)!r} has no suffix"
    )
    assert sorted(tmp_path.rglob("*")) == before


def test_a_task_has_the_setting_of_its_defaults_and_that_of_the_laptop_budget():
    assert [task.key for task in settings("image")] == ["image@1", "image@1[dev=1000,test=5000]"]
    assert [task.key for task in settings("majority")] == ["majority@1"]
