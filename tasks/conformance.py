"""Conformance checks: what every task promises, tested on any task.

`checks_for(subject)` gives the checks of a task; `run(check, subject)` runs one. `harness check`
and the tests of every registered task run these same checks.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property
from importlib import import_module
from typing import NamedTuple

import torch

from tasks import metrics
from tasks.answers import Classes
from tasks.baselines import compute
from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data.images import ImageSplit
from tasks.data.sources import GeneratedTask
from tasks.registry import tasks
from zoo.registry import (
    UserError,
    Value,
    build,
    in_one_line,
    load_guarded,
    options_of,
    resolve,
    unknown,
)

SIZES = {"train": 400, "dev": 50, "test": 50}
"""Examples of each split in the checks, at most, where they are options of a task."""

SAMPLE = 64
"""Examples of a split of which batches and texts are made."""

SHARED = 0.01
"""The largest share of examples of dev or test that train may contain."""

CEILING = 0.999
"""The mean of an accuracy from which on a baseline solves the task."""


class Result(NamedTuple):
    """Whether a task keeps a promise, and what decided it; no task declares that it breaks one."""

    check: str
    passed: bool
    detail: str
    expected_failure: str = ""


Findings = tuple[Sequence[str], str]
"""Each broken promise; and what to show where there is none."""


@dataclass(frozen=True)
class Subject:
    """A task with small splits, unless `options` give their sizes.

    Attributes:
        label: the name for messages.
        factory: the class of the task.
        options: the options that are not at their defaults.
    """

    label: str
    factory: type[Task]
    options: Mapping[str, Value]

    def make(self, **changes: Value) -> Task:
        """The task with other options; those at their defaults may be left out."""
        small = {n: size for n, size in SIZES.items() if getattr(self.factory, n, 0) > size}
        resolved = resolve(self.label, self.factory, {**small, **self.options, **changes})
        return build(f"task {self.label!r}", lambda: self.factory(**resolved))

    @cached_property
    def task(self) -> Task:
        """The task with the options of the subject."""
        return self.make()

    @cached_property
    def splits(self) -> dict[SplitName, Split]:
        """Every split of the task."""
        return {name: self.task.load(name) for name in SPLITS}


def check_contract(subject: Subject) -> Findings:
    """A task is a frozen dataclass of its options, whose key has its name and version."""
    task, other = subject.task, subject.make()
    wrong = []
    if task != other or hash(task) != hash(other):
        wrong.append("two tasks of the same options differ")
    if not re.fullmatch(rf"{re.escape(task.name)}@\d+(\[.*\])?", task.key):
        wrong.append(f"the key is {task.key!r}")
    for option in [*task.options][:1]:
        with suppress(FrozenInstanceError):
            setattr(task, option, 0)
            wrong.append(f"the option {option} of a task can be set")
    if "causal" in task.options and any(subject.make(causal=c).causal != c for c in (True, False)):
        wrong.append("the option causal does not decide whether the model is")
    return wrong, task.key


def check_classes(subject: Subject) -> Findings:
    """Every class has a name of its own."""
    task = subject.task
    names = Counter(task.class_name(target) for target in range(task.classes))
    wrong = [f"{n!r} names {count} classes" for n, count in names.items() if not n or count > 1][:1]
    return wrong, f"{len(names)} names"


def check_options(subject: Subject) -> Findings:
    """A number below its bound is refused in one line, and no other error is raised."""
    wrong, refused = [], 0
    for name, value in subject.task.options.items():
        if isinstance(value, bool | str):
            continue
        problem = ""
        try:
            task = subject.make(**{name: -1})
            task.load(name if name in SPLITS else "train")  # type: ignore[arg-type]
            problem = "is accepted" if name in (*SPLITS, "seed", "max_len") else ""
        except UserError as error:
            problem = "is refused in several lines" if "\n" in str(error) else ""
            refused += 1
        except Exception as error:
            problem = f"raises {in_one_line(error)}"
        wrong += [f"{name}=-1 {problem}"] * bool(problem)
    return wrong, f"{refused} options refuse -1"


def check_determinism(subject: Subject) -> Findings:
    """A task that is made again has the same data, whatever the number of threads."""
    other = subject.make()
    digests = {name: (split.digest(), other.load(name).digest()) for name, split in _all(subject)}
    wrong = [f"{name} differs when loaded again" for name, (a, b) in digests.items() if a != b]
    if isinstance(other, GeneratedTask):
        one, three = other.generate(1), other.generate(3)
        same = one.keys() == three.keys() and all(
            one[n].tobytes() == three[n].tobytes() for n in one
        )
        wrong += [] if same else ["3 threads generate other data than 1"]
    return wrong, f"test is {digests['test'][0][:16]}"


def check_seed(subject: Subject) -> Findings:
    """Every split of generated data is other data with another seed."""
    other = subject.make(seed=int(subject.task.options["seed"]) + 1)
    wrong = [
        f"{name} is the same with another seed"
        for name, split in _all(subject)
        if split.digest() == other.load(name).digest()
    ]
    return wrong, "every split differs"


def check_distinct(subject: Subject) -> Findings:
    """Almost no example of dev or test is in train, and none of dev is test."""
    found = {name: [*_contents(split)] for name, split in _all(subject)}
    shares = {}
    for name, of in (("dev", "train"), ("test", "train"), ("test", "dev")):
        known = {*found[of]}
        share = sum(content in known for content in found[name]) / len(found[name])
        shares[f"{name} in {of}"] = share
    wrong = [f"{share:.1%} of {what}" for what, share in shares.items() if share > SHARED]
    return wrong, ", ".join(f"{share:.1%} of {what}" for what, share in shares.items())


def check_targets(subject: Subject) -> Findings:
    """Targets are classes or finite numbers, at positions of real tokens."""
    wrong, count = [], 0
    for name, split in _all(subject):
        counted = split.answers.counted(split.targets)
        targets, at = split.targets[counted], split.target_positions
        count += len(targets)
        if not len(targets) and not (name == "test" and subject.task.inputs == "trajectories"):
            wrong.append(f"{name} has no target")
        elif isinstance(split.answers, Classes):
            if (
                len(targets)
                and not 0 <= int(targets.min()) <= int(targets.max()) < subject.task.classes
            ):
                wrong.append(f"{name} has targets from {targets.min()} to {targets.max()}")
        elif not targets.isfinite().all():
            wrong.append(f"{name} has a target that is not finite")
        if at is not None:
            ends = split.lengths[split.sequence_ids[:, :1]]
            if at.shape != split.targets.shape or (at < 0).any() or (at >= ends).any():
                wrong.append(f"{name} has target positions beyond its tokens")
    return wrong, f"{count} targets"


def check_tokens(subject: Subject) -> Findings:
    """Tokens are in the vocabulary, also in padding; values of signals and images are finite."""
    task, wrong = subject.task, []
    for name, split in _all(subject):
        sequences = split.sequences
        if isinstance(split, ImageSplit):
            sequences = split.gather(_some(split)).tokens
        if task.vocabulary and not sequences.is_floating_point():
            if not 0 <= int(sequences.min()) <= int(sequences.max()) < task.vocabulary:
                wrong.append(f"{name} has tokens from {sequences.min()} to {sequences.max()}")
        elif not sequences.isfinite().all():
            wrong.append(f"{name} has a value that is not finite")
        if not isinstance(split, ImageSplit):
            shape = (task.length(name), *([task.channels] if sequences.ndim == 3 else []))
            shape = (task.max_len // 3, *shape[1:]) if task.inputs == "trajectories" else shape
            if sequences.shape[1:] != shape or task.length(name) > task.max_len:
                wrong.append(f"{name} has sequences of shape {tuple(sequences.shape[1:])}")
        if split.sequence_ids.shape[1] != task.sequences:
            wrong.append(f"{name} has examples of {split.sequence_ids.shape[1]} sequences")
    return wrong, f"vocabulary {task.vocabulary}"


def check_padding(subject: Subject) -> Findings:
    """Padding follows the real tokens, of which every sequence has one, and a mask says so."""
    wrong = []
    for name, split in _all(subject):
        if isinstance(split, ImageSplit):
            continue
        longest, lengths = split.sequences.shape[1], split.lengths
        if len(lengths) != len(split.sequences) or not 1 <= int(lengths.min()) <= longest:
            wrong.append(f"{name} has lengths from {lengths.min()} to {lengths.max()}")
        if split.padded != bool((lengths < longest).any()):
            wrong.append(f"{name} says padded={split.padded}")
        mask = split.gather(_some(split)).mask
        real = lengths[split.sequence_ids[_some(split)]]
        expected = torch.arange(longest) < real[..., None]
        if not (expected.all() if mask is None else torch.equal(mask, expected)):
            wrong.append(f"{name} has another mask than the lengths of its sequences")
    return wrong, "lengths and masks agree"


def check_batches(subject: Subject) -> Findings:
    """A batch has the examples of its indices, whatever else it contains."""
    wrong = []
    for name, split in _all(subject):
        some = _some(split)
        batch, backwards = split.gather(some), split.gather(some.flip(0))
        parts = {n: part for n, part in vars(batch).items() if part is not None}
        pairs = [(part, getattr(backwards, n).flip(0)) for n, part in parts.items()]
        pairs.append((batch.targets, split.targets[some]))
        if not isinstance(split, ImageSplit):
            pairs.append((batch.tokens, split.sequences[split.sequence_ids[some].long()]))
        if not all(a.nan_to_num(nan=-9.0).equal(b.nan_to_num(nan=-9.0)) for a, b in pairs):
            wrong.append(f"a batch of {name} has other examples than those of its indices")
    return wrong, "examples are independent"


def check_texts(subject: Subject) -> Findings:
    """Every example has a text for each of its sequences."""
    wrong, texts = [], [""]
    for name, split in _all(subject):
        for example in _some(split).tolist():
            texts = subject.task.show(split, example)
            expected = 1 if isinstance(split, ImageSplit) else subject.task.sequences
            signals = bool(subject.task.channels) and not isinstance(split, ImageSplit)
            if not texts or not (signals or len(texts) == expected) or not all(texts):
                wrong.append(f"{name} shows example {example} as {texts}")
    return wrong[:1], f"{texts[0][:40]!r}"


def check_baselines(subject: Subject) -> Findings:
    """Baselines are finite, and one that solves the task is named in its caveat."""
    task, answers = subject.task, subject.splits["test"].answers
    found = compute(task, subject.splits)
    accuracy = metrics.find(answers.measure).metric.unit == "%"
    phrases = re.findall(r"\*(.+?)\*", task.caveat)
    wrong = []
    for name, mean in found.items():
        if not math.isfinite(mean) or (accuracy and not 0 <= mean <= 1):
            wrong.append(f"{name} has the mean {mean}")
        elif accuracy and mean >= CEILING and not any(phrase in name for phrase in phrases):
            wrong.append(f"{name} solves the task ({mean:.1%}), and its caveat does not say so")
    best = max(found, key=lambda name: found[name], default="none")
    return wrong, f"{len(found)} baselines, the highest: {best}"


class Check(NamedTuple):
    """A check: its group, its name, the function, and whether it takes less than seconds."""

    group: str
    name: str
    run: Callable[[Subject], Findings]
    fast: bool = True


CHECKS: tuple[Check, ...] = (
    Check("contract", "contract", check_contract),
    Check("contract", "names of classes", check_classes),
    Check("contract", "options within their bounds", check_options),
    Check("data", "determinism", check_determinism),
    Check("data", "seed", check_seed),
    Check("data", "distinct splits", check_distinct),
    Check("examples", "targets in range", check_targets),
    Check("examples", "tokens in range", check_tokens),
    Check("examples", "padding last", check_padding),
    Check("examples", "batches", check_batches),
    Check("examples", "texts", check_texts),
    Check("baselines", "baselines below the ceiling", check_baselines, fast=False),
)


def locate(name: str) -> type[Task] | None:
    """The task registered as `name`, or the class at `MODULE:CLASS`; None if it is no task."""
    if ":" not in name:
        return tasks.find(name) if name in tasks.names() else None
    module, _, attribute = name.partition(":")
    try:
        found = load_guarded(lambda: getattr(import_module(module), attribute))
    except Exception:
        return None
    return found if isinstance(found, type) and issubclass(found, Task) else None


def configurations(name: str, factory: type[Task], options: Mapping[str, Value]) -> list[Subject]:
    """The task with those options, after its data have been loaded: they may be missing."""
    subject = Subject(name, factory, options)
    subject.splits  # noqa: B018
    return [subject]


def require_check(name: str, where: str = "") -> None:
    """Raise `UserError`, which begins with `where`, if there is no check of that name."""
    names = [check.name for check in CHECKS]
    if name not in names:
        raise UserError(where + unknown("check", name, names))


def checks_for(
    subject: Subject, *, fast: bool = False, only: Collection[str] = ()
) -> Iterator[Check]:
    """The checks of a task, in order: the fast ones, or those named in `only`, if any.

    That of seeds is for tasks that draw their data. Tasks of own data draw at most their splits.
    """
    options = options_of(subject.factory)
    draws = "seed" in options and "path" not in options
    return (
        check
        for check in CHECKS
        if (draws or check.run is not check_seed)
        and (check.fast or not fast)
        and (not only or check.name in only)
    )


def run(check: Check, subject: Subject) -> Result:
    """Run one check; any error that the task raises is a failure."""
    try:
        wrong, detail = check.run(subject)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # Also SystemExit: a task must not end the process that checks it.
        wrong, detail = [f"raised {in_one_line(error)}"], ""
    return Result(check.name, not wrong, "; ".join(wrong) or detail)


def _all(subject: Subject) -> Iterator[tuple[SplitName, Split]]:
    return iter(subject.splits.items())


def _some(split: Split) -> torch.Tensor:
    count = min(SAMPLE, len(split))
    return torch.arange(count) * len(split) // count


def _contents(split: Split) -> Iterator[bytes]:
    """What identifies each example: its real tokens, or the name of its image."""
    if isinstance(split, ImageSplit):
        yield from split.files.names
        return
    for ids in split.sequence_ids.tolist():
        rows = [split.sequences[i, : int(split.lengths[i])] for i in ids]
        yield b"|".join(row.contiguous().numpy().tobytes() for row in rows)
