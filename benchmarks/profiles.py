"""The GPU kernels of a training step, in torch's profiler."""

from typing import Any

from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.runner import Runner
from harness.costs.work import training_call
from harness.train import Trainer

STEPS = 3
"""Profiled steps, and rounds of timing."""


def measure_profiles(runner: Runner) -> None:
    """GPU kernels of a training step at the paper's ListOps shape, in torch's profiler."""
    trainer = runner.trainer(runner.plan("primal", "listops", "paper"))
    spec = trainer.spec
    seconds = runner.seconds({"step": training_call(trainer)}, rounds=STEPS)["step"]
    busy = seconds_of_kernels(trainer) / STEPS
    setting = f"listops, recipe paper: B={spec.batch}, {spec.precision}; {STEPS} steps"
    runner.record("step-busy", setting, [taken / busy for taken in seconds])


def seconds_of_kernels(trainer: Trainer) -> float:
    """The seconds that the GPU computes in `STEPS` steps."""
    # To warm up.
    trainer.step(0)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, acc_events=True) as profiler:
        for number in range(STEPS):
            trainer.step(number)
    events: Any = profiler.key_averages()
    kernels = [event for event in events if event.device_type == DeviceType.CUDA]
    return sum(max(0.0, event.self_device_time_total) for event in kernels) / 1e6
