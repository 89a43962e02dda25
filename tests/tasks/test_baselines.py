"""Short cuts, on tasks of which it is known what each of them can and cannot do."""

import errno
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tasks import Task, baselines, tasks
from tasks.answers import CLASSES, Number
from tasks.contract import Split
from tasks.data import cache
from zoo.registry import UserError


class FirstToken(Task):
    """The first token of the last document is the answer; the bag is always the same."""

    name = "first-token"
    version = 1
    classes = 3
    vocabulary = 4
    max_len = 20

    def __init__(self, *, sequences: int = 1) -> None:
        self.sequences = sequences

    def load(self, split):
        count = {"train": 300, "dev": 60, "test": 90}[split]
        generator = torch.Generator().manual_seed(count)
        targets = torch.randint(3, (count,), generator=generator)
        rest = [torch.tensor([t for t in (1, 2, 3) for _ in range(6)]) for _ in range(count)]
        sequences = torch.zeros(count, self.max_len, dtype=torch.uint8)
        for row, (target, others) in enumerate(zip(targets.tolist(), rest, strict=True)):
            order = others[torch.randperm(18, generator=generator)]
            others = torch.cat([order[order != target + 1], order[order == target + 1][1:]])
            shuffled = others[torch.randperm(17, generator=generator)]
            sequences[row, :18] = torch.cat([torch.tensor([target + 1]), shuffled])
        # What stands behind a document's end gives the answer, to whom should not look there.
        sequences[:, 19] = (targets + 1).to(torch.uint8)
        rows = torch.randint(count, (count, self.sequences), generator=generator).int()
        rows[:, -1] = torch.arange(count)
        return Split(sequences, torch.full((count,), 18).int(), rows, targets, padded=True)


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_first_tokens_know_what_the_bag_cannot(sequences):
    found = baselines.computed(FirstToken(sequences=sequences))
    assert found["first 16 tokens"] == 1.0
    assert found["bag of tokens"] < 0.5


def test_the_bag_knows_what_the_first_tokens_cannot():
    found = baselines.computed(tasks.find("majority")(train=2000, dev=200, test=500, max_len=101))
    assert found["bag of tokens"] > 0.97
    assert found["first 16 tokens"] < 0.75


def test_the_short_cuts_of_this_version_are_pinned():
    # A class that is told from others by one count takes a small penalty.
    task = tasks.find("majority")(train=400, dev=200, test=200, max_len=16, symbols=8)
    pinned = {"chance": 0.125, "majority": 0.155, "bag of tokens": 1.0, "first 16 tokens": 0.55}
    assert (baselines.VERSION, baselines.computed(task)) == (2, pytest.approx(pinned, abs=0.011)), (
        "floors that come out otherwise must raise the version"
    )


def test_a_number_that_is_off_by_the_tolerance_is_wrong():
    scores, targets = torch.tensor([[0.5], [0.499]]), torch.zeros(2)
    assert Number(0.5).correct(scores, targets).tolist() == [False, True]


def test_no_short_cut_knows_a_parity():
    found = baselines.computed(tasks.find("parity")(train=2000, dev=200, test=500, max_len=24))
    assert found.keys() == {"chance", "majority", "bag of tokens", "first 16 tokens"}
    assert found["bag of tokens"] < 0.6
    assert found["first 16 tokens"] < 0.6


def test_the_bag_knows_the_sum_of_two_marked_numbers():
    found = baselines.computed(tasks.find("adding")(train=4000, dev=200, test=500))
    assert found.keys() == {"mean", "bag of tokens", "first 16 tokens"}
    assert found["bag of tokens"] == 1.0
    assert found["first 16 tokens"] < 0.2


RAGGED = Split(
    sequences=torch.tensor([[1, 2, 0, 3], [1, 2, 1, 2], [2, 3, 3, 3]], dtype=torch.uint8),
    lengths=torch.tensor([2, 4, 1]).int(),
    rows=torch.tensor([[0, 1], [2, 0]]).int(),
    targets=torch.tensor([0, 1]),
    padded=True,
)
"""Two examples of two documents each; what stands behind a document's end is 3 or 0."""


def test_a_bag_holds_the_shares_of_the_real_tokens_of_every_document():
    bag = baselines.Bag(RAGGED, vocabulary=4)
    shares = [[0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0], [0, 0, 1, 0, 0, 0.5, 0.5, 0]]
    assert torch.equal(bag.scores(torch.eye(bag.width)), 2 * torch.tensor(shares))


def test_a_beginning_holds_each_of_sixteen_places_and_padding_as_a_token():
    sequences = torch.arange(1, 19, dtype=torch.uint8).repeat(2, 1)
    split = Split.single(sequences, torch.tensor([18, 3]), torch.tensor([0, 1]))
    beginning = baselines.Beginning(split, vocabulary=20)
    found = beginning.scores(torch.eye(beginning.width)).reshape(2, -1, 20)
    read = [[*range(1, 17)], [1, 2, 3, *[0] * 13]]
    assert torch.equal(found, F.one_hot(torch.tensor(read), 20).float())


class Few(baselines.Features):
    """A few numbers with the answers that they are to give."""

    width, answers = 2, Number(0.1)

    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.given = torch.randn(40, 2, generator=generator)
        self.targets = self.given @ torch.tensor([1.0, -2.0]) + 3

    def scores(self, weights):
        return self.given @ weights


def test_a_number_is_fitted_by_the_ridge_regression_of_the_books():
    few, penalty = Few(), 0.5
    found = baselines._fitted(torch.zeros(3, 1), few, penalty)
    given, targets = few.given - few.given.mean(0), few.targets - few.targets.mean()
    normal = given.T @ given + penalty * len(given) * torch.eye(2)
    weights = torch.linalg.solve(normal, given.T @ targets)
    assert torch.allclose(found[:2, 0], weights, atol=1e-4)
    bias = few.targets.mean() - few.given.mean(0) @ weights
    assert torch.allclose(found[2, 0], bias, atol=1e-4)


class Uneven(FirstToken):
    """Every split has a commonest class of its own, which is the rarest of another."""

    def load(self, split):
        found = super().load(split)
        own = {"train": 0, "dev": 1, "test": 2}[split]
        missing = found.targets == (own + 1) % 3
        return replace(found, targets=torch.where(missing, own, found.targets))


def test_short_cuts_learn_from_train_choose_on_dev_and_are_told_of_test(monkeypatch):
    read = []

    def regression(learned, chosen, tested, classes):
        read.append([len(features.targets) for features in (learned, chosen, tested)])
        return 0.5

    monkeypatch.setattr(baselines, "_regression", regression)
    found = baselines.computed(Uneven())
    assert read == [[300, 60, 90]] * 2
    assert found["majority"] == 0


class FirstNumber(FirstToken):
    """The token that comes first, as a number."""

    def load(self, split):
        found = super().load(split)
        return replace(found, targets=found.targets.float(), answers=Number(0.4))


def test_a_short_cut_answers_with_a_number_where_one_is_asked_for():
    found = baselines.computed(FirstNumber())
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
    found = baselines.computed(task)
    assert found.keys() == {"chance", "majority", "most frequent in context"}
    split, right = task.load("test"), 0
    for document, targets in zip(split.sequences.tolist(), split.targets.tolist(), strict=True):
        shown = ASKED[name](document, task)
        assert {*targets} <= {*shown}
        # The lowest of equals.
        most_frequent = max(sorted(shown), key=shown.count)
        right += targets.count(most_frequent)
    assert found["most frequent in context"] == pytest.approx(right / split.targets.numel())


def test_any_value_that_mqar_shows_is_right_for_one_of_its_queries():
    found = baselines.computed(tasks.find("mqar")(train=50, dev=20, test=200))
    assert found["most frequent in context"] == 1 / 8


def test_floors_are_computed_once_and_kept(monkeypatch):
    task = FirstToken()
    first = baselines.baselines(task)
    assert first == baselines.computed(task)
    monkeypatch.setattr(baselines, "computed", None)
    assert baselines.baselines(FirstToken()) == first


def test_every_setting_keeps_floors_of_its_own():
    parity = tasks.find("parity")
    settings = [parity(train=50, dev=20, test=30, symbols=symbols) for symbols in (2, 3)]
    for _ in ("computed", "read"):
        assert [baselines.baselines(task)["chance"] for task in settings] == [1 / 2, 1 / 3]


def test_damaged_floors_are_refused():
    baselines.baselines(FirstToken())
    (path,) = cache.data_home().glob("floors*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"is damaged.*run it again"):
        baselines.baselines(FirstToken())


def test_floors_that_a_full_disk_does_not_take_are_computed_all_the_same(home, monkeypatch):
    def fill(file, **arrays):
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    assert baselines.baselines(FirstToken()) == baselines.computed(FirstToken())
    assert not list(home.iterdir())


def test_floors_need_no_cache_that_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(tmp_path / "file" / "cache"))
    assert baselines.baselines(FirstToken()) == baselines.computed(FirstToken())


class Unread(baselines.Features):
    """Features that are never looked at."""

    width, targets, answers = 1, torch.zeros(1, dtype=torch.int64), CLASSES

    def scores(self, weights):
        raise NotImplementedError


def test_the_penalty_is_chosen_on_dev_and_test_says_what_it_comes_to(monkeypatch):
    train, dev, test = Unread(), Unread(), Unread()
    right = {id(dev): [0.1, 0.9, 0.2, 0.3], id(test): [0.8, 0.4, 0.5, 0.6]}
    number = iter(range(len(baselines.PENALTIES)))
    monkeypatch.setattr(baselines, "_fitted", lambda *_: torch.full((2, 3), float(next(number))))
    monkeypatch.setattr(
        baselines, "_accuracy", lambda of, weights: right[id(of)][int(weights[0, 0])]
    )
    assert baselines._regression(train, dev, test, 3) == 0.4
