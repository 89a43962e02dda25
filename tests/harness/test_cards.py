"""The page of tasks describes the data, shows examples, and is up to date."""

import io
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image as Pillow

import tasks
from harness.baselines import fit
from harness.data import Data
from harness.pages import cards
from harness.pages.cards import card, describe, png
from harness.records.store import BaselineStore
from tasks import Split, Task
from tasks.contract import SPLITS
from tasks.data import cache
from tasks.lra.image import Image
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "tasks.md"
SIZES = {"train": 5, "dev": 2, "test": 3}


class Squares(Task):
    """Images that get brighter."""

    name, version = "squares", 3
    classes, vocabulary, max_len, images = 2, 256, 4, True
    length: ClassVar[int] = 4

    def class_name(self, target: int) -> str:
        return ("dark", "bright")[target]

    def load(self, split):
        count = SIZES[split]
        levels = torch.arange(4 * count, dtype=torch.uint8).reshape(count, 4)
        lengths = torch.arange(1, count + 1).clamp(max=4) if self.length < 4 else None
        full = torch.full((count,), 4)
        return Split.single(levels, full if lengths is None else lengths, torch.arange(count) % 2)


class Texts(Squares):
    """Text that would end a block, or a line of the page."""

    name, images, length = "texts", False, 3

    def show(self, split, example):
        return ["one\n\n```\n<br />\x07 | two", "word " * 1000][example % 2 :][:1]


def described_task(task: Task):
    """The description of a task, with baselines that no store keeps."""

    def baselines_of(spec):
        with TemporaryDirectory() as folder:
            return fit(spec, lambda _: Data.of(task), BaselineStore(Path(folder)), lambda *_: None)

    return describe(task, baselines_of)


def texts(text: str) -> dict[str, list[str]]:
    """The texts of every row by its first one, and by the second where that is a split."""
    table: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("|"):
            first, *rest = (text.strip() for text in re.split(r"(?<!\\)\|", line)[1:-1])
            split = rest[0] in SPLITS if rest else False
            table.setdefault(f"{first} {rest[0]}" if split else first, []).extend(rest[split:])
    return table


def pixels(content: bytes) -> np.ndarray:
    return np.array(Pillow.open(io.BytesIO(content)))


class Pairs(Squares):
    """Each example is two images; all have the same second one."""

    name = "pairs"

    def load(self, split):
        loaded = super().load(split)
        firsts = torch.arange(len(loaded) - 1)
        ids = torch.stack([firsts, torch.zeros_like(firsts)], 1).int()
        return Split(loaded.sequences, loaded.lengths, ids, loaded.targets[1:], padded=False)


def test_lengths_are_of_real_tokens_and_repeated_sequences_are_counted():
    class Repeated(Texts):
        def load(self, split):
            loaded = super().load(split)
            if split == "test":
                loaded.sequences[0, 3] = 99  # padding
                loaded.sequences[1, 0] = 99
            return loaded

    table = texts(card([described_task(Repeated())], "tasks"))
    assert table["`texts@3` train"][2:6] == ["1", "3.0", "2.8", "4"]
    assert table["`texts@3`"][0] == "2 of 3"


def test_images_are_files_and_a_sheet_shows_the_first_of_train():
    settings = [described_task(Squares())]
    text, files = card(settings, "there"), cards.images(settings)
    assert list(files) == [*(f"squares-{number}.png" for number in (1, 2, 3)), "squares.png"]
    assert "**Example 2**, target: bright\n\n![squares, example 2](there/squares-2.png)\n" in text
    assert "**Sheet**, target: dark; bright; dark; bright; dark\n\n![squares, sheet](there/" in text
    assert np.array_equal(
        pixels(files["squares-2.png"]), np.kron([[4, 5], [6, 7]], np.ones((4, 4)))
    )
    assert pixels(files["squares.png"]).shape == (8, 40)
    settings = [described_task(Pairs())]
    files = cards.images(settings)
    assert texts(card(settings, "x"))["`pairs@3` train"][:2] == ["4", "5"]
    assert list(files)[2:4] == ["pairs-2-1.png", "pairs-2-2.png"]
    assert np.array_equal(pixels(files["pairs-3-2.png"])[::4, ::4], [[0, 1], [2, 3]])
    # A last row of fewer images is filled with black.
    sheet = pixels(png([[[1, 2, 3, 4]] * 6, [[9, 9, 9, 9]]]))[::4, ::4]
    assert sheet.shape == (4, 12) and np.array_equal(sheet[:2, 2:4], [[1, 2], [3, 4]])
    assert (sheet[2:, :2] == 9).all() and not sheet[2:, 2:].any()


def test_nothing_in_a_text_ends_its_block_and_a_long_text_loses_its_middle():
    text = card([described_task(Texts())], "tasks")
    block = text.split("**Example 1**, target: dark\n\n")[1].split("\n\n**Example 2**")[0]
    assert block == "    one  ``` <br />\N{REPLACEMENT CHARACTER} | two"
    block = text.split("**Example 2**, target: bright\n\n")[1].split("\n\n**Example 3**")[0]
    assert all(line.startswith("    word") and len(line) <= 96 for line in block.splitlines()[:3])
    assert "word … 4,006 characters left out … word" in " ".join(block.split())


@pytest.mark.parametrize("name", ["image", "listops"])
def test_a_card_without_data_says_how_to_get_them(name, call, monkeypatch, tmp_path):
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path))
    settings = [described_task(task) for task in cards.settings(name)]
    assert len(settings) == 2 and not list(tmp_path.iterdir())
    text = card(settings, "tasks")
    keys = ", ".join(f"`{setting.task.key}`" for setting in settings)
    (line,) = (text for text in call("data", "list")[1].splitlines() if text.startswith(f"{name}:"))
    assert f"\n{keys}{line.removeprefix(name)}\n" in text
    assert "| SHA-256" not in text and "Example 1" not in text and str(tmp_path) not in text
    if name == "image":
        source = Image.source
        assert texts(text)["origin"] == [f"<{source.origin}>"]
        assert texts(text)["terms"] == [source.terms]
    both = card([settings[0], described_task(Squares())], "tasks")
    assert texts(both)["`squares@3` dev"][:2] == ["2", "2"] and "image-1.png" not in text


@pytest.fixture
def few(monkeypatch, tmp_path) -> Path:
    """Three small tasks and an empty cache; the page to write."""
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "cache"))
    trees = {"min_len": 2, "max_len": 24, "train": 4, "dev": 2, "test": 2}
    by_name = {"image": Image(), "listops": tasks.create("listops", **trees), "squares": Squares()}
    monkeypatch.setattr(tasks, "names", lambda **_: list(by_name))
    monkeypatch.setattr(cards.registry, "built_in", lambda: list(by_name.items()))
    monkeypatch.setattr(cards, "settings", lambda name: [by_name[name]])
    return tmp_path / "docs" / "cards.md"


@pytest.mark.slow
def test_a_card_without_data_or_baselines_stays_as_it_is(few, tmp_path):
    store = tmp_path / "results"
    few.parent.mkdir()
    few.write_text("# Old\n\n## image\n\nold image\n\n## squares\n\nold squares\n")
    first = cards.files_of(few, store)[few].decode()
    assert first.startswith(cards.page_of([])) and "old image" in first and "old squares" in first
    assert "`listops@1[min_len=2,max_len=24,train=4,dev=2,test=2]`: missing" in first
    cards.fit_missing(store)
    files = cards.files_of(few, store)
    second = files.pop(few).decode()
    assert "old image" in second and "old squares" not in second and "## listops" in second
    assert sorted(path.name for path in files) == sorted(
        [*(f"squares-{i}.png" for i in (1, 2, 3)), "squares.png"]
    )


@pytest.fixture(scope="module")
def users_cache() -> Path:
    """The cache of the user who runs the tests: read before each test gets another one."""
    return cache.data_home()


def section(page: str, name: str) -> str:
    """The head of the page, and the card of a task."""
    head, *cards = re.split(r"^(?=## )", page, flags=re.MULTILINE)
    return head + next(card for card in cards if card.startswith(f"## {name}\n")).rstrip()


FEW = ("adding", "copying", "majority", "mqar")
"""Tasks whose data take no second: targets are numbers, several, classes, many classes."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n not in FEW)) for n in cards.names()]
)
def test_the_card_of_a_task_is_that_of_its_data_in_the_cache(name, users_cache, monkeypatch):
    monkeypatch.setenv(cache.HOME_VARIABLE, str(users_cache))
    monkeypatch.setattr(cards, "names", lambda: [name])
    for task in cards.settings(name):
        if not getattr(task, "is_cached", lambda: True)():
            pytest.skip(f"the data of {name} are missing")
    files = cards.files_of(PAGE, ROOT / "results")
    pages = files.pop(PAGE).decode(), PAGE.read_text("utf-8")
    found, expected = (section(page, name) for page in pages)
    assert found == expected, "other data need another version; then run: python -m harness.pages"
    assert all(np.array_equal(pixels(files[path]), pixels(path.read_bytes())) for path in files)
