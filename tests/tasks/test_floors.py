"""Short cuts, on tasks of which it is known what each of them can and cannot do."""

import errno
from dataclasses import replace

import numpy as np
import pytest
import torch

from tasks import Task, cache, floors, tasks
from tasks.answers import CLASSES, Number
from tasks.contract import Split
from zoo.registry import Refused


class FirstToken(Task):
    """The first token of the last document is the answer; the bag is always the same."""

    name = "first-token"
    version = 1
    classes = 3
    vocabulary = 4
    max_len = 20

    def __init__(self, *, documents: int = 1) -> None:
        self.documents = documents

    def load(self, split):
        count = {"train": 300, "dev": 60, "test": 90}[split]
        generator = torch.Generator().manual_seed(count)
        targets = torch.randint(3, (count,), generator=generator)
        rest = [torch.tensor([t for t in (1, 2, 3) for _ in range(6)]) for _ in range(count)]
        documents = torch.zeros(count, self.max_len, dtype=torch.uint8)
        for row, (target, others) in enumerate(zip(targets.tolist(), rest, strict=True)):
            order = others[torch.randperm(18, generator=generator)]
            others = torch.cat([order[order != target + 1], order[order == target + 1][1:]])
            shuffled = others[torch.randperm(17, generator=generator)]
            documents[row, :18] = torch.cat([torch.tensor([target + 1]), shuffled])
        # What stands behind a document's end gives the answer, to whom should not look there.
        documents[:, 19] = (targets + 1).to(torch.uint8)
        rows = torch.randint(count, (count, self.documents), generator=generator).int()
        rows[:, -1] = torch.arange(count)
        return Split(documents, torch.full((count,), 18).int(), rows, targets, padded=True)


@pytest.mark.parametrize("documents", [1, 2])
def test_the_first_tokens_know_what_the_bag_cannot(documents):
    found = floors.computed(FirstToken(documents=documents))
    assert found["first 16 tokens"] == 1.0
    assert found["bag of tokens"] < 0.5


def test_the_bag_knows_what_the_first_tokens_cannot():
    found = floors.computed(tasks.find("majority")(train=2000, dev=200, test=500, max_len=101))
    assert found["bag of tokens"] > 0.97
    assert found["first 16 tokens"] < 0.75


def test_no_short_cut_knows_a_parity():
    found = floors.computed(tasks.find("parity")(train=2000, dev=200, test=500, max_len=24))
    assert found.keys() == {"chance", "majority", "bag of tokens", "first 16 tokens"}
    assert found["bag of tokens"] < 0.6
    assert found["first 16 tokens"] < 0.6


def test_the_bag_knows_the_sum_of_two_marked_numbers():
    found = floors.computed(tasks.find("adding")(train=4000, dev=200, test=500))
    assert found.keys() == {"mean", "bag of tokens", "first 16 tokens"}
    assert found["bag of tokens"] == 1.0
    assert found["first 16 tokens"] < 0.2


class FirstNumber(FirstToken):
    """The token that comes first, as a number."""

    def load(self, split):
        found = super().load(split)
        return replace(found, targets=found.targets.float(), answers=Number(0.4))


def test_a_short_cut_answers_with_a_number_where_one_is_asked_for():
    found = floors.computed(FirstNumber())
    assert found["first 16 tokens"] == 1.0
    assert found["bag of tokens"] < 0.6


ASKED = {
    "copying": lambda document, task: [token - 2 for token in document if token >= 2],
    "selective-copying": lambda document, task: [token - 2 for token in document if token >= 2],
    "induction": lambda document, task: [token - 2 for token in document if token >= 2],
    "mqar": lambda document, task: [v - task.classes for v in document[1 : 2 * task.pairs : 2]],
}


@pytest.mark.parametrize("name", ASKED)
def test_a_task_that_asks_at_tokens_has_the_commonest_answer_that_is_shown(name):
    task = tasks.find(name)(train=50, dev=20, test=200)
    found = floors.computed(task)
    assert found.keys() == {"chance", "majority", "commonest in context"}
    split, right = task.load("test"), 0
    for document, targets in zip(split.documents.tolist(), split.targets.tolist(), strict=True):
        shown = ASKED[name](document, task)
        assert {*targets} <= {*shown}
        # The lowest of equals.
        commonest = max(sorted(shown), key=shown.count)
        right += targets.count(commonest)
    assert found["commonest in context"] == pytest.approx(right / split.targets.numel())


def test_any_value_that_mqar_shows_is_right_for_one_of_its_queries():
    found = floors.computed(tasks.find("mqar")(train=50, dev=20, test=200))
    assert found["commonest in context"] == 1 / 8


def test_floors_are_computed_once_and_kept(monkeypatch):
    task = FirstToken()
    first = floors.floors(task)
    assert first == floors.computed(task)
    monkeypatch.setattr(floors, "computed", None)
    assert floors.floors(FirstToken()) == first


def test_damaged_floors_are_refused():
    floors.floors(FirstToken())
    (path,) = cache.data_home().glob("floors*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Refused, match=r"is damaged.*run it again"):
        floors.floors(FirstToken())


def test_floors_that_a_full_disk_does_not_take_are_computed_all_the_same(home, monkeypatch):
    def fill(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    assert floors.floors(FirstToken()) == floors.computed(FirstToken())
    assert not list(home.iterdir())


def test_floors_need_no_cache_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "file" / "cache"))
    assert floors.floors(FirstToken()) == floors.computed(FirstToken())


class Unread(floors.Features):
    """Features that are never looked at."""

    width, targets, answers = 1, torch.zeros(1, dtype=torch.int64), CLASSES

    def scores(self, weights):
        raise NotImplementedError


def test_the_penalty_is_chosen_on_dev_and_test_says_what_it_comes_to(monkeypatch):
    train, dev, test = Unread(), Unread(), Unread()
    right = {id(dev): [0.1, 0.9, 0.2, 0.3], id(test): [0.8, 0.4, 0.5, 0.6]}
    number = iter(range(len(floors.PENALTIES)))
    monkeypatch.setattr(floors, "_fitted", lambda *_: torch.full((2, 3), float(next(number))))
    monkeypatch.setattr(floors, "_accuracy", lambda of, weights: right[id(of)][int(weights[0, 0])])
    assert floors._regression(train, dev, test, 3) == 0.4
