"""Made-up records: every argument is something that a test may want to differ."""

from collections.abc import Callable, Mapping

import pytest

from harness.records.record import Cost, Environment, Final, Point, Quartiles, Record, Status, Usage
from harness.records.spec import ModelSpec, RunSpec, TaskSpec, TrainSpec

MODEL = ModelSpec(
    depth=2, dim=64, heads=2, feed_forward=128, head=128, dropout=0.1, attention_dropout=0.0
)
TRAIN = TrainSpec(
    batch=32, steps=5000, warmup=1000, lr=1e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0,
    evaluations=10, precision="bf16", compiled=False,
)  # fmt: skip
MIB = 2**20


def about(value: float) -> Quartiles:
    return Quartiles(q1=0.9 * value, median=value, q3=1.2 * value)


def usage(seconds: float, mib: float) -> Usage:
    return Usage(
        seconds_per_1k_steps=about(seconds),
        tokens_per_second=about(64e6 / seconds),
        peak_bytes=round(mib * MIB),
        parameters=123_456,
        flops=7_890_000_000,
    )


def make_record(
    attention: str = "softmax",
    *,
    seed: int = 0,
    accuracy: float = 0.5,
    seconds: float = 100.0,
    mib: float = 300.0,
    softmax: tuple[float, float] | None = (200.0, 400.0),
    status: Status = "ok",
    reason: str = "",
    measured: bool = True,
    options: Mapping[str, Mapping[str, object]] | None = None,
    task: str = "listops",
    key: str = "",
    budget: str = "paper",
    train: Mapping[str, object] | None = None,
    model: Mapping[str, object] | None = None,
    device: str = "cuda",
    machine: str = "NVIDIA H100",
    threads: int = 2,
    commit: str = "abc1234",
    baselines: Mapping[str, float] | None = None,
    examples: int = 2000,
    steps: int = 300,
    started: str = "2026-11-21T08:00:00Z",
) -> Record:
    spec = RunSpec.model_validate(
        {
            "attention": attention, "options": options or {attention: {}}, "seed": seed,
            "task": TaskSpec(name=task, key=key or f"{task}@1", options={}), "budget": budget,
            "model": MODEL.model_copy(update=dict(model or {})),
            "train": TRAIN.model_copy(update=dict(train or {})), "device": device,
        }
    )  # fmt: skip
    cost = Cost(
        own=usage(seconds, mib), softmax=usage(*softmax) if softmax else None,
        time_ratio=about(seconds / softmax[0]) if softmax else None,
        inference_ratio=about(0.5 * seconds / softmax[0]) if softmax else None,
    )  # fmt: skip
    final = Final(
        test_accuracy=accuracy, test_examples=examples, dev_accuracy=accuracy + 0.01, best_step=400,
        train_seconds=seconds, seconds=2 * seconds,
    )  # fmt: skip
    environment = Environment(
        device=machine, threads=threads, memory_gib=79.6, system="Linux x86_64",
        versions={"torch": "2.13.0", "python": "3.12.3"}, commit=commit,
    )  # fmt: skip
    return Record(
        spec=spec, status=status, reason=reason, started=started, environment=environment,
        baselines={"chance": 0.1, "majority": 0.17} if baselines is None else baselines,
        curve=[Point(step=steps, seconds=1.0, loss=2.0, losses={}, dev_accuracy=None)],
        cost=cost if measured else None, final=final if status == "ok" else None,
    )  # fmt: skip


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a record up."""
    return make_record
