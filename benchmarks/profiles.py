"""Where the time of a training step goes, in torch's profiler."""

import re
from contextlib import suppress
from functools import cache
from types import ModuleType
from typing import Any

from torch.autograd import DeviceType, Function
from torch.profiler import ProfilerActivity, profile

from benchmarks.claims import ProfileRecord, write
from benchmarks.runner import Runner, section
from harness.environment import describe
from harness.records.fields import Quartiles, now
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

WORKLOADS = [("listops", "laptop"), ("image", "laptop"), ("listops", "paper")]
"""Task and recipe of the steps."""


@section("profiles")
def measure_profiles(runner: Runner) -> None:
    """Where the time of a training step goes, by group of operations, in torch's profiler.

    Steps of the laptop ListOps and Image runs and of the paper's ListOps run, each of `primal`,
    SDPA softmax and `none`. Operations are grouped by their names, so that an addition or a copy
    counts as one wherever it is, except in compiled loops of an attention variant, which count as
    *other*.
    """
    # On CUDA each model is compiled, which takes longer than the rest: only the models of `step`.
    for task, recipe in WORKLOADS if runner.kind == "cpu" else WORKLOADS[-1:]:
        for attention in ("primal", "softmax", "none"):
            # The data of Image are not generated.
            with suppress(UserError):
                plan = runner.plan(attention, task, recipe)
                measure_step(runner.trainer(plan), runner, task, recipe, attention)


def measure_step(trainer: Trainer, runner: Runner, task: str, recipe: str, attention: str) -> None:
    """Write the profile of a step, and the claims about the paper's ListOps run."""
    seconds = runner.seconds({"step": lambda: trainer.step(0)}, rounds=STEPS)["step"]
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if runner.kind == "cuda" else []
    with profile(activities=activities, acc_events=True) as profiler:
        for number in range(STEPS):
            trainer.step(number)
    times = self_times(profiler, runner)
    total = sum(times.values())
    shares = {group: share / total for group, share in grouped(times).items()}
    batch, precision = trainer.spec.batch, trainer.spec.precision
    largest = sorted(times, key=lambda name: -times[name])[:SHOWN]
    record = ProfileRecord(
        name=f"profile-{task}-{recipe}-{attention}", workload=f"{task}, recipe {recipe}: B={batch}",
        attention=attention, precision=precision,
        milliseconds=Quartiles.of(1000 * one for one in seconds), shares=shares,
        operations={name: times[name] / total for name in largest}, taken=now(),
        environment=describe(runner.kind),
    )  # fmt: skip
    write(record, runner.out, runner.kind)
    if recipe != "paper":
        return
    how = f"listops, recipe paper: B={batch}, {precision}; {STEPS} steps"
    elementwise = sum(shares[group] for group in ELEMENTWISE)
    runner.record(f"step-elementwise-{attention}", how, [elementwise])
    if runner.kind == "cuda" and attention == "primal":
        kernels = times_of(profiler, "self_device_time_total", DeviceType.CUDA)
        busy = sum(kernels.values()) / 1e6 / STEPS
        runner.record("step-busy", how, [one / busy for one in seconds])


def self_times(profiler: profile, runner: Runner) -> dict[str, float]:
    """Microseconds of each operation, the operations that it calls excluded.

    On a GPU, of its kernels; where a graph of kernels was launched, of each kernel.
    """
    if runner.kind == "cpu":
        return times_of(profiler, "self_cpu_time_total", DeviceType.CPU)
    kinds = DeviceType.CPU, DeviceType.CUDA
    operations, kernels = (times_of(profiler, "self_device_time_total", kind) for kind in kinds)
    return operations or kernels


def times_of(profiler: profile, field: str, kind: DeviceType) -> dict[str, float]:
    """The times of operations on a kind of device by name, in microseconds; those above 0."""
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
    """The group of an operation, by the name under which the profiler shows it."""
    if name.removesuffix("Backward") in autograd_functions(dropout):
        return "dropout"
    matching = (group for group, form in GROUPS.items() if re.search(form, name.lower()))
    return next(matching, OTHER)


@cache
def autograd_functions(module: ModuleType) -> frozenset[str]:
    """The names under which the profiler shows the autograd functions of a module."""
    classes = (one for one in vars(module).values() if isinstance(one, type))
    return frozenset(one.__name__ for one in classes if issubclass(one, Function))
