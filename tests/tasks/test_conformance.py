"""Every task keeps the promises of all tasks, its data are fixed, and each check can fail."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tasks import create
from tasks.conformance import CHECKS, Subject, checks_for, run
from tasks.contract import SPLITS, Split, Task
from tasks.data.sources import ImportedTask
from tasks.registry import tasks
from zoo.registry import options_of

OPTIONS = {"listops": {"min_len": 10, "max_len": 64}, "pathfinder": {"train": 100}}
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


DIGESTS = {
    "compression@1[train=300,dev=40,test=50]": "29146574 2ba295f3 3ee9a215",
    "fuzzy-recall@1[train=300,dev=40,test=50]": "06810c9f 11475e3c 7fb084bf",
    "memorise@1[train=300,dev=40,test=50]": "a851d83c 75c15963 858af4d6",
    "noisy-recall@1[train=300,dev=40,test=50]": "67c7a887 47819e90 4f91820d",
    "recall@1[train=300,dev=40,test=50]": "e5e5e1c4 f39dbbf0 cbe58704",
    "overwrite@1[train=300,dev=40,test=50]": "f14fdd03 b25a6140 6f40f907",
    "a5@2[train=300,dev=40,test=50]": "2b98210d f65e7204 1e25a2b4",
    "adding@2[train=300,dev=40,test=50]": "5ff3262f 17e47e36 22e35ee1",
    "copying@1[train=300,dev=40,test=50]": "5550c075 236c77d2 03c3a582",
    "induction@1[train=300,dev=40,test=50]": "dcd85620 3f359ccc f3adc047",
    "histogram@1[train=300,dev=40,test=50]": "7697f92d 464307a0 8c0bc36a",
    "majority@1[train=300,dev=40,test=50]": "695380e0 043f8d3e 894dbc51",
    "modular-addition@2[train=300,dev=40,test=50]": "68c95697 9afa11fc 639e59b2",
    "mqar@4[train=300,dev=40,test=50]": "dc1fc5dc 48cd415e 4feeee04",
    "parity@3[train=300,dev=40,test=50]": "fb3b230c 6828eaa2 7205b951",
    "s3@2[train=300,dev=40,test=50]": "6dd4f193 e232b680 99a210bb",
    "scaling@1[train=300,dev=40,test=50]": "1ab3a3dc 68724162 1b639751",
    "selective-copying@1[train=300,dev=40,test=50]": "940a72f6 080c9bb9 6c69b55a",
    "mqar@4[filler=random,train=300,dev=40,test=50]": "958821c7 f1e87b32 e50b1f7b",
    "induction@1[specials=4,train=300,dev=40,test=50]": "e01f3ebd dbda5f28 dfbd5825",
    "listops@1[min_len=10,max_len=64,train=300,dev=40,test=50,seed=3]":
        "89622fac 18d24c6b b0529243",
    "pathfinder@2[train=60,dev=20,test=20]": "e2932164 a729223d b1b4f864",
    "pathfinder@2[size=64,contour=9,train=60,dev=20,test=20]": "5a09daa9 26795541 376c9bc0",
    "pathfinder@2[size=128,contour=6,train=60,dev=20,test=20]": "77e9452d 98c6fed4 e01e15fa",
}  # fmt: skip
"""The first digits of the digests of train, dev and test: published runs depend on them."""


def entry(task):
    return f'"{task.key}": "{" ".join(task.load(split).digest()[:8] for split in SPLITS)}",'


def test_every_generated_task_has_a_digest():
    names = {key.partition("@")[0] for key in DIGESTS}
    missing = [create(n, train=300, dev=40, test=50) for n in GENERATED if n not in names]
    assert not missing, f"enter in DIGESTS: {' '.join(map(entry, missing))}"
    assert names == {*GENERATED}


@pytest.mark.parametrize(
    "key", [pytest.param(k, marks=[SLOW] * k.startswith("pathfinder")) for k in DIGESTS]
)
def test_the_data_of_a_version_are_fixed(key):
    name, _, options = key.rstrip("]").replace("[", "@").split("@")
    changes = dict(change.split("=") for change in options.split(","))
    found = entry(create(name, **changes))
    expected = f'"{key}": "{DIGESTS[key]}",'
    assert found == expected, f"{name} has changed: increment its version, and enter {found}"


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


def at(positions):
    return lambda s: torch.as_tensor(positions).expand(len(s), 1)


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
    column = {"target_positions": at(place), "targets": lambda s: s.targets[:, None]}
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
