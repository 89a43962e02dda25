"""Conformance checks: what every task promises, tested on any task.

`checks_for(subject)` gives the checks of a task; `run(check, subject)` runs one. `harness check`
and the tests of every registered task run these same checks.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass
from functools import cached_property
from importlib import import_module
from itertools import islice
from typing import NamedTuple

import torch

from tasks import metrics
from tasks.answers import Classes
from tasks.baselines import compute
from tasks.contract import SPLITS, Split, SplitName, Task
from tasks.data.images import ImageSplit
from tasks.data.sources import GeneratedTask
from tasks.registry import tasks
from zoo import registry
from zoo.registry import UserError, Value, build, in_one_line, options_of, resolve

# Examples of each split in the checks, at most, where they are options of a task.
SIZES = {"train": 400, "dev": 50, "test": 50}

SAMPLE = 64  # Examples of a split that are made into batches and texts
SHARED = 0.01  # The largest share of examples of dev or test that train may contain
CEILING = 0.999  # The mean of an accuracy from which on a baseline solves the task


class Result(NamedTuple):
    check: str
    passed: bool
    detail: str  # The promise, or how it is broken
    expected_failure: str = ""


@dataclass(frozen=True)
class Subject:
    # A task with small splits, unless `options` give their sizes.
    label: str
    factory: type[Task]
    options: Mapping[str, Value]

    def make(self, **changes: Value) -> Task:
        small = {n: size for n, size in SIZES.items() if getattr(self.factory, n, 0) > size}
        resolved = resolve(self.label, self.factory, {**small, **self.options, **changes})
        return build(f"task {self.label!r}", lambda: self.factory(**resolved))

    @cached_property
    def task(self) -> Task:
        return self.make()

    @cached_property
    def splits(self) -> dict[SplitName, Split]:
        return {name: self.task.load(name) for name in SPLITS}


def check_contract(subject: Subject) -> Iterator[str]:
    """A task is a frozen dataclass of its options, whose key has its name and version."""
    task, other = subject.task, subject.make()
    if task != other or hash(task) != hash(other):
        yield "two tasks of the same options differ"
    if not re.fullmatch(rf"{re.escape(task.name)}@\d+(\[.*\])?", task.key):
        yield f"the key is {task.key!r}"
    for option in [*task.options][:1]:
        with suppress(FrozenInstanceError):
            setattr(task, option, 0)
            yield f"the option {option} of a task can be set"
    if "causal" in task.options and any(subject.make(causal=c).causal != c for c in (True, False)):
        yield "the option causal does not decide whether the model is"


def check_classes(subject: Subject) -> Iterator[str]:
    """Every class has a name of its own."""
    names = Counter(map(subject.task.class_name, range(subject.task.classes)))
    wrong = (f"{n!r} names {count} classes" for n, count in names.items() if not n or count > 1)
    yield from islice(wrong, 1)


def check_options(subject: Subject) -> Iterator[str]:
    """A number below its bound is refused in one line, and no other error is raised."""
    for name, value in subject.task.options.items():
        if isinstance(value, bool | str):
            continue
        try:
            task = subject.make(**{name: -1})
            task.load(name if name in SPLITS else "train")  # type: ignore[arg-type]
            if name in (*SPLITS, "seed", "max_len"):
                yield f"{name}=-1 is accepted"
        except UserError as error:
            if "\n" in str(error):
                yield f"{name}=-1 is refused in several lines"
        except Exception as error:
            yield f"{name}=-1 raises {in_one_line(error)}"


def check_determinism(subject: Subject) -> Iterator[str]:
    """A task that is made again has the same data, whatever the number of threads."""
    other = subject.make()
    for name, split in subject.splits.items():
        if split.digest() != other.load(name).digest():
            yield f"{name} differs when loaded again"
    if isinstance(other, GeneratedTask):
        arrays = [other.generate(threads) for threads in (1, 3)]
        if len({b"".join(part[n].tobytes() for n in sorted(part)) for part in arrays}) > 1:
            yield "3 threads generate other data than 1"


def check_seed(subject: Subject) -> Iterator[str]:
    """Every split of generated data is other data with another seed."""
    other = subject.make(seed=int(subject.task.options["seed"]) + 1)
    for name, split in subject.splits.items():
        if split.digest() == other.load(name).digest():
            yield f"{name} is the same with another seed"


def check_distinct(subject: Subject) -> Iterator[str]:
    """Almost no example of dev or test is in train, and none of dev is in test."""
    found = {name: [*_contents(split)] for name, split in subject.splits.items()}
    for name, other in (("dev", "train"), ("test", "train"), ("test", "dev")):
        known = {*found[other]}
        share = sum(content in known for content in found[name]) / len(found[name])
        if share > SHARED:
            yield f"{share:.1%} of {name} is in {other}"


def check_targets(subject: Subject) -> Iterator[str]:
    """Targets are classes or finite numbers, at positions of real tokens."""
    for name, split in subject.splits.items():
        targets = split.targets[split.answers.counted(split.targets)]
        if not len(targets):
            if name != "test" or subject.task.inputs != "trajectories":
                yield f"{name} has no target"
        elif isinstance(split.answers, Classes):
            low, high = int(targets.min()), int(targets.max())
            if not 0 <= low <= high < subject.task.classes:
                yield f"{name} has targets from {low} to {high}"
        elif not targets.isfinite().all():
            yield f"{name} has a target that is not finite"
        if (at := split.target_positions) is not None:
            ends = split.lengths[split.sequence_ids[:, :1]]
            if at.shape != split.targets.shape or (at < 0).any() or (at >= ends).any():
                yield f"{name} has target positions beyond its tokens"


def check_tokens(subject: Subject) -> Iterator[str]:
    """Tokens are in the vocabulary, also in padding; values of signals and images are finite."""
    task = subject.task
    for name, split in subject.splits.items():
        images = isinstance(split, ImageSplit)
        values = split.gather(_some(split)).tokens if images else split.sequences
        if not values.is_floating_point():
            if not 0 <= int(values.min()) <= int(values.max()) < task.vocabulary:
                yield f"{name} has tokens from {values.min()} to {values.max()}"
        elif not values.isfinite().all() or (task.vocabulary and not task.channels):
            yield f"{name} has a value that is not finite, or no token"
        # A trajectory has three tokens for each step.
        longest = task.length(name) // (3 if task.inputs == "trajectories" else 1)
        shape = (longest, *([task.channels] if values.ndim == 3 else []))
        if not images and (values.shape[1:] != shape or task.length(name) > task.max_len):
            yield f"{name} has sequences of shape {tuple(values.shape[1:])}"
        if split.sequence_ids.shape[1] != task.sequences:
            yield f"{name} has examples of {split.sequence_ids.shape[1]} sequences"


def check_padding(subject: Subject) -> Iterator[str]:
    """Every sequence has a real token, padding follows the real tokens, and a mask says so."""
    for name, split in subject.splits.items():
        if isinstance(split, ImageSplit):
            continue
        longest, lengths = split.sequences.shape[1], split.lengths
        if len(lengths) != len(split.sequences) or not 1 <= int(lengths.min()) <= longest:
            yield f"{name} has lengths from {lengths.min()} to {lengths.max()}"
        if split.padded != bool((lengths < longest).any()):
            yield f"{name} says padded={split.padded}"
        mask = split.gather(_some(split)).mask
        real = lengths[split.sequence_ids[_some(split)]]
        expected = torch.arange(longest) < real[..., None]
        if not (expected.all() if mask is None else torch.equal(mask, expected)):
            yield f"{name} has another mask than the lengths of its sequences"


def check_batches(subject: Subject) -> Iterator[str]:
    """A batch has the examples of its indices, whatever else it contains."""
    for name, split in subject.splits.items():
        some = _some(split)
        batch, backwards = split.gather(some), split.gather(some.flip(0))
        parts = {n: part for n, part in vars(batch).items() if part is not None}
        pairs = [(part, getattr(backwards, n).flip(0)) for n, part in parts.items()]
        pairs.append((batch.targets, split.targets[some]))
        if not isinstance(split, ImageSplit):
            pairs.append((batch.tokens, split.sequences[split.sequence_ids[some].long()]))
        if not all(a.nan_to_num(nan=-9.0).equal(b.nan_to_num(nan=-9.0)) for a, b in pairs):
            yield f"a batch of {name} does not have the examples at its indices"


def check_texts(subject: Subject) -> Iterator[str]:
    """Every example has a text, and one of tokens has a text for each of its sequences."""
    task = subject.task
    has_words = type(task).show is Task.show
    for name, split in subject.splits.items():
        for example in _some(split).tolist():
            texts = task.show(split, example)
            words = [task.word(t) for s in split.tokens(example) for t in s] if has_words else []
            is_whole = task.channels or len(texts) == task.sequences
            if not texts or not all(texts) or not all(words) or not is_whole:
                yield f"{name} shows example {example} as {texts}"
                break


def check_baselines(subject: Subject) -> Iterator[str]:
    """Baselines are finite, and one that solves the task is named in its caveat."""
    measure = metrics.find(subject.splits["test"].answers.measure)
    accuracy = measure.metric.unit == "%"
    phrases = re.findall(r"\*(.+?)\*", subject.task.caveat)
    for name, mean in compute(subject.task, subject.splits).items():
        if not math.isfinite(mean) or (accuracy and not 0 <= mean <= 1):
            yield f"{name} has the mean {mean}"
        elif accuracy and mean >= CEILING and not any(phrase in name for phrase in phrases):
            yield f"{name} solves the task ({mean:.1%}), and its caveat does not say so"


class Check(NamedTuple):
    group: str
    name: str
    run: Callable[[Subject], Iterator[str]]
    fast: bool = True  # It takes less than seconds


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
    if ":" not in name:
        return tasks.find(name) if name in tasks.names() else None
    module, _, attribute = name.partition(":")
    try:
        found = registry.load_guarded(lambda: getattr(import_module(module), attribute))
    except Exception:
        return None
    return found if isinstance(found, type) and issubclass(found, Task) else None


def configurations(name: str, factory: type[Task], options: Mapping[str, Value]) -> list[Subject]:
    subject = Subject(name, factory, options)
    build(f"the data of task {name!r}", lambda: subject.splits)
    return [subject]


def require_check(name: str, where: str = "") -> None:
    names = [check.name for check in CHECKS]
    if name not in names:
        raise UserError(where + registry.unknown("check", name, names))


def checks_for(
    subject: Subject, *, fast: bool = False, only: Collection[str] = ()
) -> Iterator[Check]:
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
    try:
        wrong = [*check.run(subject)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # also SystemExit: a task must not end its check's process
        wrong = [f"raised {in_one_line(error)}"]
    promise = (check.run.__doc__ or "").partition(".\n")[0].rstrip(".")
    return Result(check.name, not wrong, "; ".join(wrong) or promise)


def _some(split: Split) -> torch.Tensor:
    count = min(SAMPLE, len(split))
    return torch.arange(count) * len(split) // count


def _contents(split: Split) -> Iterator[bytes]:
    if isinstance(split, ImageSplit):
        yield from split.files.names
        return
    for ids in split.sequence_ids.tolist():
        rows = [split.sequences[i, : int(split.lengths[i])] for i in ids]
        yield b"|".join(row.contiguous().numpy().tobytes() for row in rows)
