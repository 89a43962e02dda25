"""The operations of a training step, in torch's profiler."""

import re
from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.runner import Runner
from harness.reference import training_call
from harness.train import Trainer

STEPS = 3
"""Profiled steps, and rounds of timing."""

# Not the lengths of vectors, nor `addmm`.
ELEMENTWISE = re.compile(r"(?i)(?<!vector_)norm|copy|(^|:)(to|clone|contiguous|cat|stack|add_?)$")
"""Names of norms, casts, copies and additions."""


def measure_profiles(runner: Runner) -> None:
    """Operations of a training step at the paper's ListOps shape, in torch's profiler.

    On a CPU, norms, casts, copies and additions, by the names of operations: an addition or a copy
    counts wherever it is, except in compiled loops of an attention variant. On a GPU, its kernels.
    """
    for attention in ("primal", "none") if runner.kind == "cpu" else ("primal",):
        trainer = runner.trainer(runner.plan(attention, "listops", "paper"))
        spec = trainer.spec
        setting = f"listops, recipe paper: B={spec.batch}, {spec.precision}; {STEPS} steps"
        if runner.kind == "cpu":
            times = times_of(trainer, "self_cpu_time_total", DeviceType.CPU)
            elementwise = sum(time for name, time in times if ELEMENTWISE.search(name))
            ratio = elementwise / sum(time for _, time in times)
            runner.record(f"step-elementwise-{attention}", setting, [ratio])
        else:
            seconds = runner.seconds({"step": training_call(trainer)}, rounds=STEPS)["step"]
            kernels = times_of(trainer, "self_device_time_total", DeviceType.CUDA)
            busy = sum(time for _, time in kernels) / 1e6 / STEPS
            runner.record("step-busy", setting, [taken / busy for taken in seconds])


def times_of(trainer: Trainer, field: str, kind: DeviceType) -> list[tuple[str, float]]:
    """Names and microseconds of the operations of `STEPS` steps, what they call excluded.

    The microseconds are a `field` of the profiler's events of a kind of device.
    """
    # To warm up.
    trainer.step(0)
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if kind == DeviceType.CUDA else []
    with profile(activities=activities, acc_events=True) as profiler:
        for number in range(STEPS):
            trainer.step(number)
    events: Any = profiler.key_averages()
    on_device = [event for event in events if event.device_type == kind]
    return [(event.key, max(0.0, getattr(event, field))) for event in on_device]
