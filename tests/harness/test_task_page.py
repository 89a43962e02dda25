"""The committed task page names the data there are now: another hash needs another version."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from harness.cards import page, pictures
from harness.facts import Facts, gather, settings
from tasks import names as task_names
from tasks.registry import tasks
from tasks.data import cache

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"

DIGEST = re.compile(r"^\| `(\S+)` +\| (\w+) +\| `([0-9a-f]{64})` \|$", re.MULTILINE)

QUICK = {"listops@1[min_len=50,max_len=512,train=20000]"}
"""Settings that are generated in seconds."""


@pytest.fixture(scope="module")
def users_cache() -> Path:
    """The cache of whoever runs the tests: set up before each test gets one of its own."""
    return cache.data_home()


@pytest.fixture
def gathered(users_cache, data_home, monkeypatch):
    """The facts of each setting of a task; what is generated here goes to the tests' cache."""
    # Floors take a minute, and have tests of their own: their tables are passed over.
    monkeypatch.setattr("harness.facts.floors", lambda task: {"passed over": 0.0})

    def gather_all(name: str) -> list[Facts]:
        found = []
        for task in settings(name):
            quick = task.key in QUICK
            monkeypatch.setenv(cache.HOME_VARIABLE, str(data_home if quick else users_cache))
            found.append(gather(task, generate=quick))
        return found

    return gather_all


@pytest.mark.parametrize("name", task_names(required_options=False))
def test_the_committed_card_is_of_the_data_that_are_there(name, gathered):
    text = PAGE.read_text("utf-8")
    known = {(key, split): digest for key, split, digest in DIGEST.findall(text)}
    found = gathered(name)
    if not any(one.parts for one in found):
        pytest.skip(f"the data of {name} are not there; {found[0].missing}")
    for one in found:
        for split, part in one.parts.items():
            assert known.get((one.task.key, split)) == part.digest, (
                f"{split} of {one.task.key} is not what the page names: data that are meant to "
                "change need another version; renew the page with: harness cards"
            )
    if all(one.parts for one in found):
        require_fresh(name, text, found)


def test_the_page_begins_as_it_would_today():
    begun = PAGE.read_text("utf-8").partition("\n## ")[0]
    assert begun.strip() == page([], PAGE.stem).strip(), "stale; renew it with: harness cards"


def require_fresh(name: str, text: str, found: list[Facts]) -> None:
    committed, new = card_of(name, text), card_of(name, page([found], PAGE.stem))
    (baselines,) = (number for number, part in enumerate(new) if "passed over" in part)
    new[baselines] = committed[baselines]
    assert committed == new, "stale; renew it with: harness cards"
    for file, content in pictures([found]).items():
        shown = (PAGE.with_suffix("") / file).read_bytes()
        assert np.array_equal(pixels(shown), pixels(content)), f"{file} is stale"


def card_of(name: str, text: str) -> list[str]:
    """The paragraphs and tables of a card."""
    return text.split(f"\n## {name}\n")[1].split("\n## ")[0].strip().split("\n\n")


def pixels(content: bytes) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content)))
