"""Baselines, on tasks that each of them is known to solve or not."""

from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tasks import BASELINES_VERSION, Task, baselines, create
from tasks.baselines import context, fitting, grey_images, listops, tokens
from tasks.contract import SPLITS, Split
from tasks.lra.listops import tokenise


@dataclass(frozen=True, kw_only=True)
class FirstToken(Task):
    name = "first-token"
    version = 1
    classes = 3
    vocabulary = 4
    max_len = 20
    sequences = 2  # the last one has the class

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
        ids = torch.randint(count, (count, 2), generator=generator).int()
        ids[:, -1] = torch.arange(count)
        return Split(tokens, torch.full((count,), 18).int(), ids, targets, padded=True)


def compute(task):
    return baselines.compute(task, {name: task.load(name) for name in SPLITS})


COPIED = {"train": 2000, "dev": 20, "test": 1000, "max_len": 32, "symbols": 8, "count": 4}
BOUNDS = [
    (FirstToken(), {"first 16 tokens": (1, 1), "bag of tokens": (0, 0.5)}),
    (create("majority", train=999, dev=200, test=500, max_len=101),
     {"bag of tokens": (0.95, 1), "first 16 tokens": (0, 0.75)}),
    (create("adding", train=2000, dev=200, test=500),
     # The sum of two uniform numbers is within 0.08 of its mean with probability 0.1536.
     {"mean": (0.12, 0.19), "bag of tokens": (1, 1), "first 16 tokens": (0, 0.2)}),
    (create("copying", **COPIED), {"by position of the query": (1, 1)}),
    (create("selective-copying", **COPIED, causal=False),
     {"by position of the query": (0.68, 0.76), "most frequent in context": (0, 0.45)}),
]  # fmt: skip
"""The least and the highest accuracy of baselines that solve a task, or cannot."""


@pytest.mark.parametrize(("task", "bounds"), BOUNDS)
def test_a_baseline_solves_what_it_reads_and_nothing_else(task, bounds):
    accuracies = compute(task)
    for name, (least, highest) in bounds.items():
        assert least <= accuracies[name] <= highest


def test_the_baselines_of_this_version_are_fixed():
    # A class that differs from the others in one count needs a small penalty.
    task = create("majority", train=400, dev=200, test=200, max_len=16, symbols=8)
    fixed = {"chance": 0.125, "majority": 0.155, "bag of tokens": 1.0, "first 16 tokens": 0.55}
    assert (BASELINES_VERSION, compute(task)) == (8, pytest.approx(fixed, abs=0.011))


def test_the_sign_of_a_product_of_s3_leaves_a_guess_among_the_elements_that_have_it():
    task = create("s3", train=200, dev=50, test=500)
    signs = [sum(p[a] > p[b] for a, b in combinations(range(3), 2)) % 2 for p in task.elements]
    guessed = [1 / signs.count(signs[i]) for i in task.load("test").targets.flatten().tolist()]
    assert compute(task)["sign of the product"] == pytest.approx(np.mean(guessed))


def test_a_bag_has_the_shares_of_the_real_tokens_of_every_sequence():
    split = Split(
        sequences=torch.tensor([[1, 2, 0, 3], [1, 2, 1, 2], [2, 3, 3, 3]], dtype=torch.uint8),
        lengths=torch.tensor([2, 4, 1]).int(), sequence_ids=torch.tensor([[0, 1], [2, 0]]).int(),
        targets=torch.tensor([0, 1]), padded=True,
    )  # fmt: skip
    shares = [[0, 0.5, 0.5, 0, 0, 0.5, 0.5, 0], [0, 0, 1, 0, 0, 0.5, 0.5, 0]]
    assert np.array_equal(tokens.bag_of_tokens(split, 4), 2 * np.array(shares))


def test_first_tokens_are_one_hot_at_sixteen_positions_with_padding_as_token_zero():
    sequences = torch.arange(1, 19, dtype=torch.uint8).repeat(2, 1)
    split = Split.single(sequences, torch.tensor([18, 3]), torch.tensor([0, 1]))
    features = tokens.one_hot(split, 20, 16).toarray().reshape(2, 16, 20)
    expected = torch.tensor([[*range(1, 17)], [1, 2, 3, *[0] * 13]])
    assert np.array_equal(features, F.one_hot(expected, 20).numpy())
    assert tokens.end_tokens(split, 2).tolist() == [[1, 2, 17, 18], [1, 2, 2, 3]]
    assert tokens.last_tokens(split, 5).tolist() == [[14, 15, 16, 17, 18], [0, 0, 1, 2, 3]]


def counted(sequence, order):
    runs = [tuple(sequence[i : i + order]) for i in range(len(sequence) - order + 1)]
    logs = np.array(sorted(np.log1p([runs.count(run) for run in {*runs}])))
    return logs / np.linalg.norm(logs) if len(logs) else logs


@pytest.mark.parametrize("order", [2, 4])
def test_ngrams_are_normalised_logarithmic_counts_of_the_real_tokens(order):
    sequences = torch.randint(3, (6, 12), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([12, 9, 4, 3, 1, 12])
    split = Split.single(sequences.to(torch.uint8), lengths, torch.zeros(6).long())
    # Of the 300^4 possible 4-grams, hashed, the few that occur do not collide.
    features = tokens.ngrams(split, 300 if order == 4 else 3, order)
    for row, sequence in enumerate(split.sequences.tolist()):
        expected = counted(sequence[: lengths[row]], order)
        assert np.allclose(sorted(features[[row]].data), expected, atol=1e-6)
    again = replace(split, sequence_ids=split.sequence_ids.flip(0))
    assert (tokens.ngrams(again, 3, 2)[[0]] != tokens.ngrams(split, 3, 2)[[5]]).nnz == 0


def test_the_features_are_chosen_on_dev():
    # The first and the last token are the class in train, the first in dev, the last in test.
    drawn = torch.randint(2, (3, 400, 6), generator=torch.Generator().manual_seed(1)).byte()
    drawn[0, :, 5] = drawn[0, :, 0]
    ends = zip(drawn, (0, 0, 5), strict=True)
    parts = [Split.single(sequences, None, sequences[:, end]) for sequences, end in ends]
    splits = dict(zip(SPLITS, parts, strict=True))
    ends = {"last": tokens.last_tokens, "first": tokens.first_tokens}
    candidates = {name: partial(fitting.trees, partial(end, count=1)) for name, end in ends.items()}
    found = fitting.best_on_dev(candidates, splits, 200)
    assert [*found] == ["first"] and found["first"] < 0.6
    assert candidates["first"](splits).dev == 1.0


def test_the_features_of_a_tree_count_operators_and_digits_by_depth():
    row = torch.from_numpy(tokenise("[MAX 3 [SM 4 4 [MIN 9 9 ] 7 ] 3 [SM 5 1 ] [MIN 8 2 ] 0 ]"))
    padded, length = F.pad(row, (0, 3), value=2)[None], torch.tensor([len(row)])
    split = Split.single(padded, length, torch.zeros(1))
    root, digits = [12, 3], [1, 0, 0, 2, 0, 0, 0, 0, 0, 0]  # of 0 to 9
    operators = [1, 0, 0, 2]  # MIN, MAX, MED, SM
    below_min = [0, 0, 1, 0, 0, 0, 0, 0, 1, 0]
    below_sm = [0, 1, 0, 0, 2, 1, 0, 1, 0, 0]
    expected = root + digits + operators + below_min + [0] * 20 + below_sm
    for features_of, count in zip(listops.SETS.values(), (12, 12 + 4, 12 + 4 + 40), strict=True):
        assert features_of(split).tolist() == [expected[:count]]


def test_the_discs_of_an_image_are_found_and_their_surroundings_read():
    images = torch.zeros(1, 32, 32, dtype=torch.uint8)
    images[0, 3:29, 16] = 250  # a paddle: brighter, and narrower than a disc
    disc = (200 * torch.tensor(grey_images.DISC)).to(torch.uint8)
    for y, x in ((20, 5), (1, 30)):
        images[0, y - 1 : y + 2, x - 1 : x + 2] = disc
    images[0, 19:23, 4:8] = 240  # what makes the first disc brighter is no second one
    assert grey_images.find_discs(images).tolist() == [[1, 30, 20, 5]]
    around = grey_images.find_surroundings(images)[0, 4:].view(2, 5, 5)
    assert torch.equal(around[0, 1:4, 1:4].to(torch.uint8), disc)
    assert around[0, 0].sum() == around[0, :, 4].sum() == 0  # beyond the image
    assert around[1].sum() == 16 * 240


def test_a_perceptron_learns_what_no_linear_model_of_the_pixels_can(monkeypatch):
    for name, value in {"WIDTHS": (32,), "BATCH": 32, "RATE": 0.01}.items():
        monkeypatch.setattr(grey_images, name, value)
    drawn = torch.randint(2, (3, 200, 4), generator=torch.Generator().manual_seed(0))
    parts = [Split.single((of * 255).byte(), None, of[:, 0] ^ of[:, 1]) for of in drawn]
    splits = dict(zip(SPLITS, parts, strict=True))
    before = torch.get_rng_state()
    assert grey_images.perceptron(splits).test > 0.95
    assert grey_images.PIXEL_MODELS["pixels, linear"](splits).test < 0.7
    assert torch.equal(torch.get_rng_state(), before)


def splits_of(*parts):
    rows = ([row[:2] for row in part for _ in range(row[2])] for part in parts)
    columns = (torch.tensor(of, dtype=torch.uint8).T for of in rows)
    single = (Split.single(tokens[:, None], None, targets) for tokens, targets in columns)
    return dict(zip(SPLITS, single, strict=True))


def test_the_penalty_is_chosen_on_dev_and_not_on_test(monkeypatch):
    # A large penalty leaves the majority of train, class 0, to token 2, which is rare in train.
    train = [(1, 0, 990), (2, 1, 10)]
    for penalties in ([10.0, 1e-5], [1e-5, 10.0]):
        monkeypatch.setattr(fitting, "PENALTIES", penalties)
        for target, right in ((0, 0.0), (1, 1.0)):
            splits = splits_of(train, [(2, target, 10)], [(2, 1, 10)])
            features = partial(tokens.one_hot, vocabulary=3, count=16)
            assert fitting.linear(features, splits).test == right
    # A train split of one class has shallow baselines, too.
    splits = splits_of([(1, 1, 5)], [(1, 1, 5)], [(1, 1, 3), (2, 0, 1)])
    features = partial(tokens.bag_of_tokens, vocabulary=3)
    assert fitting.linear(features, splits).test == fitting.trees(features, splits).test == 0.75


@pytest.mark.parametrize("name", ["copying", "mqar"])
def test_a_task_with_target_positions_has_the_most_frequent_answer_of_the_sequence(name):
    task = create(name, train=50, dev=20, test=200)
    accuracies, of_query = compute(task), "by position of the query"
    rules = {of_query, "by rank of the query", "by rank and position of the query"}
    names = accuracies.keys() - {"chance", "majority", "most frequent in context"}
    assert names == (rules if name == "mqar" else {of_query})
    split, correct = task.load("test"), 0
    for sequence, targets in zip(split.sequences.tolist(), split.targets.tolist(), strict=True):
        contained = [token - 2 for token in sequence if token >= 2]
        if name == "mqar":
            contained = [value - task.classes for value in sequence[1 : 2 * task.pairs : 2]]
        assert {*targets} <= {*contained}
        correct += targets.count(max(sorted(contained), key=contained.count))  # the lowest of ties
    share = correct / split.targets.numel()
    assert accuracies["most frequent in context"] == pytest.approx(share)
    assert name != "mqar" or share == 1 / 8


def test_the_answers_after_a_special_token_are_those_of_a_plain_loop():
    task = create("induction", train=50, dev=20, test=300, max_len=24, specials=3)
    accuracies, split = compute(task), task.load("test")
    random, frequent = [], []
    for sequence, (target,) in zip(split.sequences.tolist(), split.targets.tolist(), strict=True):
        specials = [i for i, token in enumerate(sequence[:-1]) if not 2 <= token < 18]
        after = [sequence[i + 1] - 2 for i in specials]
        assert len(after) == 3
        random.append(after.count(target) / 3)
        frequent.append(target == max(sorted(after), key=after.count))
    assert accuracies["random after a special token"] == pytest.approx(np.mean(random))
    assert accuracies["most frequent after a special token"] == pytest.approx(np.mean(frequent))


def test_what_was_correct_for_a_key_is_learned_from_train_place_by_place():
    # Query 1 is answered by place 0, query 3 by place 2; places 0 and 1 often hold the same.
    places = {
        "train": [[0, 1, 2], [1, 0, 0], [2, -1, 1]],
        "dev": [[0, 0, 0]],
        "test": [[2, 0, 1], [1, 1, 0], [-1, 0, 0]],
    }
    splits = {}
    for name, rows in places.items():
        found = torch.tensor(rows)
        at = torch.tensor([[1, 3]]).expand(len(found), 2)
        splits[name] = Split.single(found, None, found[:, [0, 2]], at)
    rule = partial(context.by_query, candidates=lambda s: s.sequences, splits=splits, classes=3)
    assert rule(context.positions) == pytest.approx(5 / 6)
    assert rule(lambda split: context.positions(split) * 0) < 5 / 6


def test_a_place_that_is_rarely_there_counts_by_the_share_in_which_it_is_correct():
    found = {"train": [[0, -1], [0, -1], [0, -1], [0, 1]], "dev": [[0, 1]], "test": [[0, 1]]}
    targets = {"train": [0, 0, 1, 1], "dev": [1], "test": [1]}
    splits = {
        name: Split.single(torch.tensor(rows), None, torch.tensor(targets[name])[:, None], None)
        for name, rows in found.items()
    }
    rule = partial(context.by_query, candidates=lambda s: s.sequences, splits=splits, classes=2)
    assert rule(context.positions) == 1.0
