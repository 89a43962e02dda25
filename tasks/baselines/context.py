"""Rules that answer with what an example contains, and do not look for what is asked.

Axis letters as in `tasks.contract`. `Candidates` gives the answers that an example contains, by
their place; see `Task.candidates`. A query is a target position; its rank is its number among the
queries of its example, in order of position.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tasks.contract import NO_ANSWER, Baseline, Split, Splits

Candidates: TypeAlias = Callable[[Split], Int[Tensor, "n c"]]

Keys: TypeAlias = Callable[[Split], Int[Tensor, "n a"]]  # What a rule knows of a query, as a number
VALUES = 1 << 24  # Numbers of an intermediate tensor, at most

# Votes for a place that was never correct: its answers then count by their frequency.
RARE = 1e-6


def baselines(candidates: Candidates, splits: Splits, classes: int) -> Mapping[str, Baseline]:
    names: dict[str, Keys] = {
        "rank": ranks, "position": positions,
        "rank and position": lambda of: ranks(of) * of.sequences.shape[1] + positions(of),
    }  # fmt: skip
    query_positions = positions(splits["train"])
    if (query_positions == query_positions[:1]).all():
        names = {"position": positions}  # which then has one rank
    rules: dict[str, Callable[..., float]] = {"most frequent in context": most_frequent}
    rules |= {f"by {name} of the query": partial(by_query, keys) for name, keys in names.items()}
    return {name: partial(rule, candidates, classes=classes) for name, rule in rules.items()}


def random(candidates: Candidates, splits: Splits) -> float:
    test = splits["test"]
    found = candidates(test)
    shares = [
        _matches(found[part], test.targets[part]).sum(2) / (found[part] >= 0).sum(1, keepdim=True)
        for part in _parts(test, found.shape[1])
    ]
    return torch.cat(shares)[test.answers.counted(test.targets)].nan_to_num().double().mean().item()


def most_frequent(candidates: Candidates, splits: Splits, classes: int) -> float:
    votes = torch.ones(1, candidates(splits["test"]).shape[1])
    return _accuracy(candidates, splits["test"], classes, lambda part: votes)


def by_query(keys: Keys, candidates: Candidates, splits: Splits, classes: int) -> float:
    # The votes of a place are the share of train in which its candidate was correct. Votes for one
    # answer are added.
    train, test = splits["train"], splits["test"]
    both = torch.cat([keys(train).flatten(), keys(test).flatten()])
    numbers = both.unique(return_inverse=True)[1]
    count = train.targets.numel()
    learned = numbers[:count].view_as(train.targets)
    tested = numbers[count:].view_as(test.targets)
    found = candidates(train)
    correct = torch.zeros(int(numbers.max()) + 1, found.shape[1])
    present = torch.zeros_like(correct)
    for part in _parts(train, found.shape[1]):
        matches = _matches(found[part], train.targets[part])
        has_any = (found[part] >= 0)[:, None].expand_as(matches)
        correct.index_add_(0, learned[part].flatten(), matches.flatten(0, 1).float())
        present.index_add_(0, learned[part].flatten(), has_any.flatten(0, 1).float())
    votes = correct / present.clamp_min(1) + RARE
    return _accuracy(candidates, test, classes, lambda part: votes[tested[part]])


def positions(split: Split) -> Int[Tensor, "n a"]:
    if split.target_positions is None:
        return torch.zeros(len(split), 1, dtype=torch.int64)
    return split.target_positions.long()


def ranks(split: Split) -> Int[Tensor, "n a"]:
    return positions(split).argsort(1).argsort(1)


def _accuracy(
    candidates: Candidates, split: Split, classes: int,
    votes_of: Callable[[slice], Float[Tensor, "..."]],
) -> float:  # fmt: skip
    found, correct = candidates(split), []
    for part in _parts(split, max(classes, found.shape[1])):
        targets = split.targets[part]
        shape = (*targets.shape, found.shape[1])
        places = found[part][:, None].expand(shape)
        votes = votes_of(part).expand(shape) * (places != NO_ANSWER)
        sums = torch.zeros(*targets.shape, classes).scatter_add_(2, places.clamp_min(0), votes)
        correct.append(sums.argmax(2) == targets)
    return torch.cat(correct)[split.answers.counted(split.targets)].double().mean().item()


def _matches(found: Int[Tensor, "b c"], targets: Int[Tensor, "b a"]) -> Bool[Tensor, "b a c"]:
    return (found[:, None] == targets[:, :, None]) & (targets[:, :, None] >= 0)


def _parts(split: Split, width: int) -> Iterator[slice]:
    step = max(1, VALUES // (split.targets.shape[1] * width))
    return (slice(first, first + step) for first in range(0, len(split), step))
