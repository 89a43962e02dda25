"""Baselines, on tasks that each of them is known to solve or not."""

import errno
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tasks import Task, baselines, create
from tasks.answers import Number
from tasks.baselines import shallow
from tasks.contract import SPLITS, Split
from tasks.data import cache
from zoo.registry import UserError


@dataclass(frozen=True, kw_only=True)
class FirstToken(Task):
    """The first token of the last sequence is the answer; the bag of tokens is always the same."""

    name = "first-token"
    version = 1
    classes = 3
    vocabulary = 4
    max_len = 20

    sequences: int = 1

    def load(self, split):
        count = {"train": 300, "dev": 60, "test": 90}[split]
        generator = torch.Generator().manual_seed(count)
        targets = torch.randint(3, (count,), generator=generator)
        tokens = torch.zeros(count, self.max_len, dtype=torch.uint8)
        for row, target in enumerate(targets.tolist()):
            others = torch.tensor([t for t in (1, 2, 3) for _ in range(6)])
            others = torch.cat([others[others != target + 1], others[others == target + 1][1:]])
            tokens[row, 0] = target + 1
            tokens[row, 1:18] = others[torch.randperm(17, generator=generator)]
        tokens[:, 19] = (targets + 1).to(torch.uint8)  # at a padded position: must not be read
        ids = torch.randint(count, (count, self.sequences), generator=generator).int()
        ids[:, -1] = torch.arange(count)
        return Split(tokens, torch.full((count,), 18).int(), ids, targets, padded=True)


def load(task):
    return {name: task.load(name) for name in SPLITS}


def compute(task):
    return baselines.compute(task, load(task))


def evaluate(task):
    splits = load(task)
    digests = {name: split.digest() for name, split in splits.items()}
    return baselines.evaluate(task, splits, digests)


@pytest.mark.parametrize("sequences", [1, 2])
def test_the_first_tokens_solve_what_the_bag_cannot(sequences):
    accuracies = compute(FirstToken(sequences=sequences))
    assert accuracies["first 16 tokens"] == 1.0
    assert accuracies["bag of tokens"] < 0.5


def test_the_bag_solves_what_the_first_tokens_cannot():
    accuracies = compute(create("majority", train=2000, dev=200, test=500, max_len=101))
    assert accuracies["bag of tokens"] > 0.97
    assert accuracies["first 16 tokens"] < 0.75


def test_the_baselines_of_this_version_are_fixed():
    # A class that differs from the others in one count needs a small penalty.
    task = create("majority", train=400, dev=200, test=200, max_len=16, symbols=8)
    fixed = {"chance": 0.125, "majority": 0.155, "bag of tokens": 1.0, "first 16 tokens": 0.55}
    assert (baselines.VERSION, compute(task)) == (3, pytest.approx(fixed, abs=0.011))


def test_no_shallow_baseline_solves_parity():
    accuracies = compute(create("parity", train=2000, dev=200, test=500, max_len=24))
    assert accuracies.keys() == {"chance", "majority", "bag of tokens", "first 16 tokens"}
    assert accuracies["bag of tokens"] < 0.6 and accuracies["first 16 tokens"] < 0.6


def test_the_bag_solves_the_sum_of_two_marked_numbers():
    accuracies = compute(create("adding", train=4000, dev=200, test=500))
    assert accuracies.keys() == {"mean", "bag of tokens", "first 16 tokens"}
    assert accuracies["bag of tokens"] == 1.0
    assert accuracies["first 16 tokens"] < 0.2


def test_a_bag_has_the_shares_of_the_real_tokens_of_every_sequence():
    split = Split(
        sequences=torch.tensor([[1, 2, 0, 3], [1, 2, 1, 2], [2, 3, 3, 3]], dtype=torch.uint8),
        lengths=torch.tensor([2, 4, 1]).int(),
        sequence_ids=torch.tensor([[0, 1], [2, 0]]).int(),
        targets=torch.tensor([0, 1]),
        padded=True,
    )
    shares = [[0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0], [0, 0, 1, 0, 0, 0.5, 0.5, 0]]
    assert np.array_equal(shallow.bag_of_tokens(split, 4), 2 * np.array(shares))


def test_first_tokens_are_one_hot_at_sixteen_positions_with_padding_as_token_zero():
    sequences = torch.arange(1, 19, dtype=torch.uint8).repeat(2, 1)
    split = Split.single(sequences, torch.tensor([18, 3]), torch.tensor([0, 1]))
    features = shallow.first_tokens(split, 20).toarray().reshape(2, 16, 20)
    tokens = torch.tensor([[*range(1, 17)], [1, 2, 3, *[0] * 13]])
    assert np.array_equal(features, F.one_hot(tokens, 20).numpy())


@dataclass(frozen=True, kw_only=True)
class Uneven(FirstToken):
    """The most frequent class of each split is the rarest of another."""

    def load(self, split):
        plain = super().load(split)
        own = {"train": 0, "dev": 1, "test": 2}[split]
        missing = plain.targets == (own + 1) % 3
        return replace(plain, targets=torch.where(missing, own, plain.targets))


def test_the_majority_baseline_is_learned_from_train():
    assert compute(Uneven())["majority"] == 0


def splits_of(*rows):
    """One feature, the token; train, dev and test from rows of (token, class, count)."""
    splits = {}
    for name, part in zip(SPLITS, rows, strict=True):
        tokens = torch.tensor([token for token, _, count in part for _ in range(count)])
        targets = torch.tensor([target for _, target, count in part for _ in range(count)])
        lengths = torch.ones(len(tokens), dtype=torch.int32)
        splits[name] = Split.single(tokens[:, None].to(torch.uint8), lengths, targets)
    return splits


def test_the_penalty_is_chosen_on_dev_and_not_on_test(monkeypatch):
    # A large penalty leaves the majority of train, class 0, to token 2, which is rare in train.
    train = [(1, 0, 990), (2, 1, 10)]
    for penalties in ([10.0, 1e-5], [1e-5, 10.0]):
        monkeypatch.setattr(shallow, "PENALTIES", penalties)
        for target, right in ((0, 0.0), (1, 1.0)):
            splits = splits_of(train, [(2, target, 10)], [(2, 1, 10)])
            assert shallow.accuracy(shallow.first_tokens, splits, 3) == right


def test_a_train_split_of_one_class_has_shallow_baselines():
    splits = splits_of([(1, 1, 5)], [(1, 1, 5)], [(1, 1, 3), (2, 0, 1)])
    assert shallow.accuracy(shallow.bag_of_tokens, splits, 3) == 0.75


@dataclass(frozen=True, kw_only=True)
class FirstNumber(FirstToken):
    """The first token as a number."""

    def load(self, split):
        plain = super().load(split)
        return replace(plain, targets=plain.targets.float(), answers=Number(0.4))


def test_a_shallow_baseline_answers_with_a_number_where_the_target_is_one():
    accuracies = compute(FirstNumber())
    assert accuracies["first 16 tokens"] == 1.0
    assert accuracies["bag of tokens"] < 0.6


def symbols(sequence, task):
    if task.name == "mqar":
        return [value - task.classes for value in sequence[1 : 2 * task.pairs : 2]]
    return [token - 2 for token in sequence if token >= 2]


@pytest.mark.parametrize("name", ["copying", "selective-copying", "induction", "mqar"])
def test_a_task_with_target_positions_has_the_most_frequent_answer_of_the_sequence(name):
    task = create(name, train=50, dev=20, test=200)
    accuracies = compute(task)
    assert accuracies.keys() == {"chance", "majority", "most frequent in context"}
    split, correct = task.load("test"), 0
    for sequence, targets in zip(split.sequences.tolist(), split.targets.tolist(), strict=True):
        contained = symbols(sequence, task)
        assert {*targets} <= {*contained}
        correct += targets.count(max(sorted(contained), key=contained.count))  # the lowest of ties
    share = correct / split.targets.numel()
    assert accuracies["most frequent in context"] == pytest.approx(share)
    assert name != "mqar" or share == 1 / 8


def test_baselines_are_computed_once_and_cached(monkeypatch):
    first = evaluate(FirstToken())
    assert first == compute(FirstToken())
    monkeypatch.setattr(baselines, "compute", None)
    assert evaluate(FirstToken()) == first


def test_cached_baselines_are_of_the_same_data():
    assert FirstToken().key == Uneven().key
    assert evaluate(FirstToken())["majority"] > 0 == evaluate(Uneven())["majority"]


def test_every_setting_has_baselines_of_its_own():
    settings = [create("parity", train=50, dev=20, test=30, symbols=n) for n in (2, 3)]
    for _ in ("computed", "cached"):
        assert [evaluate(task)["chance"] for task in settings] == [1 / 2, 1 / 3]


def test_damaged_baselines_are_an_error():
    evaluate(FirstToken())
    (path,) = cache.data_home().glob("baselines*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"is damaged.*run it again"):
        evaluate(FirstToken())


def test_baselines_need_no_cache(home, monkeypatch):
    def fill(file, **arrays):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", fill)
    assert evaluate(FirstToken()) == compute(FirstToken())
    assert not list(home.iterdir())
    (home / "file").write_text("")
    monkeypatch.setenv(cache.HOME_VARIABLE, str(home / "file" / "cache"))
    assert evaluate(FirstToken()) == compute(FirstToken())
