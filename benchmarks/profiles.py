"""Where the time of a training step goes, by group of operations, in torch's profiler.

Steps of the laptop ListOps and Image runs and of the paper's ListOps run, each of `primal`, SDPA
softmax and `none`. Operations are grouped by their names, so that an addition or a copy counts as
one wherever it is, except in compiled loops of an attention variant, which count as *other*.
"""

import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from torch.autograd import DeviceType, Function
from torch.profiler import ProfilerActivity, profile

from benchmarks.claims import Claim, Finding, ProfileRecord, Setting, now
from benchmarks.workloads import FEW, NONE, fastest, plan_of, trainer_of
from harness.environment import describe
from harness.measure import quartiles, time_alternately
from harness.plan import Settings
from harness.reference import REFERENCE, SDPA
from harness.train import Trainer
from zoo.kernels import dropout
from zoo.registry import UserError

STEPS = 3
"""Profiled steps, and rounds of timing."""

SHOWN = 12
"""Operations that a record names."""

GROUPS = {
    "dropout": r"dropout|bernoulli|random",
    # Not the lengths of vectors.
    "norms": r"(?<!vector_)norm",
    "attention kernel": r"scaled_dot_product|flash|fmha",
    "matrix products": r"(^|:)(add)?(b?mm|bmm|baddbmm|matmul|linear|einsum|mv)_?$|gemm",
    "casts and copies": r"copy|(^|:)(to|clone|contiguous|cat|stack)$",
    "additions": r"(^|:)(add|add_)$",
    "sums": r"(^|:)(sum|mean|cumsum)$|reduce",
    "activation": r"gelu|relu",
    "optimiser": r"adam|zero_grad",
    "embedding": r"embedding|index|gather",
}
"""Regular expressions of names of operations; the first that matches counts."""

OTHER = "other"

ELEMENTWISE = ("norms", "casts and copies", "additions")

CLAIMS = [
    Claim(
        name=f"step-elementwise-{name}",
        what="Share of norms, casts, copies and additions in the profiled time of a training step "
        f"of {name}",
        bounds={"cpu": 0.2, "cuda": None},
        limit="One read and one write of the tokens for each norm and each residual addition.",
    )
    for name in ("primal", "none")
] + [
    Claim(
        name="step-busy",
        what="Time of a training step of primal over that of its GPU kernels",
        bounds={"cuda": 1 / 0.9},
        limit="1: the GPU never waits.",
    )
]


class Workload(NamedTuple):
    """A training step to profile."""

    task: str
    budget: str
    settings: Settings


WORKLOADS = [
    Workload("listops", "laptop", {"listops": FEW}),
    Workload("image", "laptop", NONE),
    Workload("listops", "paper", {"listops": FEW}),
]


def measure(setting: Setting) -> Iterator[Finding | ProfileRecord]:
    """See `CLAIMS`; also a record of each profile."""
    # On CUDA each model is compiled, which takes longer than the rest: those of `step` alone.
    for workload in WORKLOADS if setting.kind == "cpu" else WORKLOADS[-1:]:
        for attention in ("primal", REFERENCE, "none"):
            settings = dict(workload.settings)
            if attention == REFERENCE:
                settings[REFERENCE] = {"backend": SDPA}
            names = (attention, workload.task, workload.budget, fastest(setting))
            try:
                trainer = trainer_of(plan_of(setting, *names, settings), setting)
            except UserError:
                # The data of Image are not generated.
                continue
            yield from profiled(trainer, setting, workload, attention)


def profiled(
    trainer: Trainer, setting: Setting, workload: Workload, attention: str
) -> Iterator[Finding | ProfileRecord]:
    """The profile of a step, and the findings about the paper's ListOps run."""
    (seconds,) = time_alternately([lambda: trainer.step(0)], setting.device, rounds=STEPS)
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if setting.kind == "cuda" else []
    with profile(activities=activities, acc_events=True) as profiler:
        for number in range(STEPS):
            trainer.step(number)
    times = self_times(profiler, setting)
    total = sum(times.values())
    shares = {group: share / total for group, share in grouped(times).items()}
    precision = trainer.spec.precision
    largest = sorted(times, key=lambda name: -times[name])[:SHOWN]
    yield ProfileRecord(
        name=f"profile-{workload.task}-{workload.budget}-{attention}",
        workload=f"{workload.task}, budget {workload.budget}: B={trainer.spec.batch}",
        attention=attention,
        precision=precision,
        milliseconds=quartiles(1000 * one for one in seconds),
        shares=shares,
        operations={name: times[name] / total for name in largest},
        taken=now(),
        environment=describe(setting.kind),
    )
    if workload.budget != "paper" or attention == REFERENCE:
        return
    how = f"listops, budget paper: B={trainer.spec.batch}, {precision}; {STEPS} steps"
    elementwise = sum(shares[group] for group in ELEMENTWISE)
    yield Finding(name=f"step-elementwise-{attention}", setting=how, ratios=[elementwise])
    if setting.kind == "cuda" and attention == "primal":
        busy = sum(kernel_times(profiler).values()) / 1e6 / STEPS
        yield Finding(name="step-busy", setting=how, ratios=[one / busy for one in seconds])


def self_times(profiler: profile, setting: Setting) -> dict[str, float]:
    """Microseconds of each operation, the operations that it calls excluded.

    On a GPU, those of its kernels; where a graph of kernels was launched, those of each kernel.
    """
    field = "self_device_time_total" if setting.kind == "cuda" else "self_cpu_time_total"
    return _times(profiler, field, DeviceType.CPU) or kernel_times(profiler)


def kernel_times(profiler: profile) -> dict[str, float]:
    """Microseconds of each GPU kernel."""
    return _times(profiler, "self_device_time_total", DeviceType.CUDA)


def _times(profiler: profile, field: str, kind: DeviceType) -> dict[str, float]:
    times: dict[str, float] = {}
    for event in profiler.key_averages():
        one: Any = event
        if one.device_type == kind and getattr(one, field) > 0:
            times[one.key] = times.get(one.key, 0.0) + getattr(one, field)
    return times


def grouped(times: dict[str, float]) -> dict[str, float]:
    """The times of operations summed by group, every group in order."""
    sums = dict.fromkeys((*GROUPS, OTHER), 0.0)
    for name, taken in times.items():
        sums[group_of(name)] += taken
    return sums


def group_of(name: str) -> str:
    """The group of an operation."""
    if name.removesuffix("Backward") in own_functions(dropout):
        return "dropout"
    matching = (group for group, form in GROUPS.items() if re.search(form, name.lower()))
    return next(matching, OTHER)


@cache
def own_functions(module: ModuleType) -> frozenset[str]:
    """The names under which the profiler shows the autograd functions of a module."""
    classes = (one for one in vars(module).values() if isinstance(one, type))
    return frozenset(one.__name__ for one in classes if issubclass(one, Function))
