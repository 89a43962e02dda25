"""Every task keeps the promises of all tasks, and each check can fail."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tasks.conformance import CHECKS, Subject, checks_for, run
from tasks.contract import SPLITS, Split, Task
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import options_of

# Words of tokens and draws of motifs take most of the time.
FEW = {"train": 100, "dev": 20, "test": 20}
RUNGS = {"mixture": "4/32x2,8/64", **FEW}
OPTIONS = {
    "listops": {"min_len": 10, "max_len": 64}, "pathfinder": {"train": 100},
    "recall": RUNGS, "overwrite": RUNGS, "noisy-recall": FEW, "fuzzy-recall": FEW, "scaling": FEW,
}  # fmt: skip
SUBJECTS = {
    name: Subject(name, task, OPTIONS.get(name, {}))
    for name, task in tasks.built_in()
    if "path" not in options_of(task)
}
WITHOUT_DATA = ("contract", "names of classes")
GENERATED = [n for n, subject in SUBJECTS.items() if not issubclass(subject.factory, ImportedTask)]
SLOW = pytest.mark.slow  # numba compiles the drawing for ten to twenty seconds
PAIRS = [
    pytest.param(subject, check, id=f"{name}: {check.name}", marks=[SLOW] * (name == "pathfinder"))
    for name, subject in SUBJECTS.items()
    for check in checks_for(subject, only=() if name in GENERATED else WITHOUT_DATA)
]


@pytest.mark.parametrize(("subject", "check"), PAIRS)
def test_every_task_keeps_its_promises(subject, check):
    result = run(check, subject)
    assert result.passed, result.detail


@dataclass(frozen=True, kw_only=True)
class Good(Task):
    name = "good"
    version = 1
    classes = 3
    vocabulary = 9

    max_len: int = 8
    size: int = 3
    causal: bool = False
    train: int = 60
    dev: int = 30
    test: int = 30
    seed: int = 0

    def __post_init__(self):
        self._require(max_len=3, size=0)

    def load(self, split):
        count, seeds = getattr(self, split), [self.seed, SPLITS.index(split)]
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seeds)))
        sequences = torch.from_numpy((rng.random((count, self.max_len)) * 9).astype(np.uint8))
        lengths = torch.from_numpy((3 + rng.random(count) * (self.max_len - 2)).astype(np.int32))
        lengths[0] = 3
        return Split.single(sequences, lengths, torch.arange(count) % 3)


FAULTS = {}
"""Faulty tasks by the check that must fail."""


def faulty(check, **attributes):
    FAULTS.setdefault(check, []).append(type("Bad", (Good,), attributes))


def loads(change):
    return lambda self, name: change(Good.load(self, name))


def replaced(**changes):
    return loads(lambda split: replace(split, **{n: f(split) for n, f in changes.items()}))


class Jumping(Split):
    def gather(self, examples, length=None):
        batch = super().gather(examples, length)
        return replace(batch, tokens=batch.tokens + examples[:1, None, None])


class Unmasked(Split):
    def gather(self, examples, length=None):
        return replace(super().gather(examples, length), mask=None)


def unseeded(task, name):
    return Good.load(task if name != "test" else replace(task, seed=1), name)


faulty("contract", __hash__=lambda self: id(self))
faulty("contract", __setattr__=object.__setattr__)
faulty("contract", key="good@x")
faulty("contract", causal=property(lambda self: True))
faulty("names of classes", class_name=lambda self, target: "same")
faulty("names of classes", labels=("a", "", "b"))
faulty("options within their bounds", __post_init__=lambda self: None)
faulty("options within their bounds", __post_init__=lambda self: self._require(size=0))
faulty("options within their bounds", __post_init__=lambda self: 1 // (1 + self.size))
faulty("determinism", load=replaced(targets=lambda s: torch.randint(3, s.targets.shape)))
faulty("seed", load=unseeded)
faulty("distinct splits", load=lambda self, name: Good.load(self, name.replace("dev", "train")))
faulty("targets in range", load=replaced(targets=lambda s: s.targets + 1))
faulty("targets in range", load=replaced(targets=lambda s: s.targets - 1))
for place in (7, -1):
    column = {
        "target_positions": lambda s, place=place: torch.full((len(s), 1), place),
        "targets": lambda s: s.targets[:, None],
    }
    faulty("targets in range", load=replaced(**column))
faulty("tokens in range", load=replaced(sequences=lambda s: s.sequences + 1))
faulty("tokens in range", load=replaced(sequences=lambda s: s.sequences.float() * torch.nan))
faulty("tokens in range", length=lambda self, split: 7)
faulty("tokens in range", sequences=2, show=lambda self, split, example: ["a", "b"])
faulty("padding last", load=replaced(lengths=lambda s: s.lengths - 3))
faulty("padding last", load=replaced(padded=lambda s: False))
faulty("padding last", load=loads(lambda s: Unmasked(**vars(s))))
faulty("batches", load=loads(lambda s: Jumping(**vars(s))))
faulty("texts", show=lambda self, split, example: [])
first_token = replaced(targets=lambda s: s.sequences[:, 0].long() // 3)
faulty("baselines below the ceiling", load=first_token)
nan = {"x": lambda s: torch.nan}
faulty("baselines below the ceiling", channels=1, shallow_baselines=lambda self: nan)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_each_check_fails_on_its_faults_and_on_no_good_task(check):
    assert run(check, Subject("good", Good, {})).passed
    assert check.name in FAULTS
    for number, task in enumerate(FAULTS[check.name]):
        result = run(check, Subject("bad", task, {}))
        assert not result.passed, number
        assert "\n" not in result.detail
