"""Synthetic records: every argument is something that a test may want to vary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from harness.records.answers import CorrectAnswers
from harness.records.record import Record
from tasks.metric import Metric

MIB = 2**20

ACCURACY = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100, chance=10.0)


def quartiles(value: float) -> dict[str, float]:
    return {"q1": 0.9 * value, "median": value, "q3": 1.2 * value}


def usage(seconds: float, mib: float) -> dict[str, Any]:
    return {
        "seconds_per_1k_steps": quartiles(seconds), "tokens_per_second": quartiles(64e6 / seconds),
        "peak_bytes": round(mib * MIB), "parameters": 123_456, "flops": 7_890_000_000,
    }  # fmt: skip


def make_record(
    attention: str = "softmax",
    *,
    seed: int = 0,
    accuracy: float = 0.5,
    seconds: float = 100.0,
    mib: float = 300.0,
    softmax: tuple[float, float] | None = (200.0, 400.0),
    status: str = "ok",
    reason: str = "",
    measured: bool = True,
    options: Mapping[str, Mapping[str, object]] | None = None,
    task: str = "listops",
    key: str = "",
    block: int = 0,
    budget: str = "paper",
    train: Mapping[str, object] | None = None,
    model: Mapping[str, object] | None = None,
    overrides: Mapping[str, object] | None = None,
    device: str = "cuda",
    machine: str = "NVIDIA H100",
    threads: int = 2,
    commit: str = "abc1234",
    baselines: Mapping[str, float] | None = None,
    failures: Mapping[str, str] | None = None,
    examples: int = 2000,
    correct: Sequence[bool] | None = None,
    is_baseline: bool | None = None,
    started: str = "2026-11-21T08:00:00Z",
    reference: str = "naive",
) -> Record:
    """A record, finished unless `status` is another; `correct` gives its answers.

    `accuracy` and `baselines` are fractions.
    """
    if correct is not None:
        accuracy, examples = sum(correct) / len(correct), len(correct)
    first, depth = attention.partition("+")[0], int((model or {}).get("depth", 2))
    spec = {
        "attention": attention, "options": options or {attention: {}}, "seed": seed,
        "layers": [*[first] * (depth - 1), attention.rpartition("+")[2]],
        "task": {"name": task, "key": key or f"{task}@1", "options": {}, "block": block,
                 "digests": {"test": f"{block:064}"}},
        "budget": budget, "overrides": overrides or {}, "device": device,
        "model": {"kind": "encoder", "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128,
                  "head": 128, "dropout": 0.1, "attention_dropout": 0.0, "positions": "learned",
                  **(model or {})},
        "train": {"batch": 32, "steps": 5000, "warmup": 1000, "lr": 1e-4, "betas": [0.9, 0.999],
                  "cycle_momentum": False, "eps": 1e-6, "weight_decay": 0.0, "evaluations": 10,
                  "precision": "bf16", "compiled": False, **(train or {})},
    }  # fmt: skip
    cost = {
        "own": usage(seconds, mib), "softmax": usage(*softmax) if softmax else None,
        "time_ratio": quartiles(seconds / softmax[0]) if softmax else None,
        "inference_ratio": quartiles(0.5 * seconds / softmax[0]) if softmax else None,
    }  # fmt: skip
    if softmax and reference:
        fastest = {"backend": reference, "precision": "bf16"}
        cost |= {"reference": fastest, "inference_reference": fastest}
    final = {
        "score": 100 * accuracy, "test_examples": examples, "dev": 100 * min(1, accuracy + 0.01),
        "best_step": 400, "train_seconds": seconds, "seconds": 2 * seconds,
    }  # fmt: skip
    if correct is not None:
        packed = CorrectAnswers.pack(correct, [1] * len(correct))
        final["sample"] = packed.model_dump()
    environment = {
        "device": machine, "threads": threads, "memory_gib": 79.6, "system": "Linux x86_64",
        "versions": {"torch": "2.13.0", "python": "3.12.3"}, "commit": commit,
    }  # fmt: skip
    curve = {"step": 300, "seconds": 1.0, "loss": 2.0, "losses": {}}
    return Record.model_validate({
        "spec": spec, "status": status, "reason": reason, "started": started,
        "environment": environment, "implementations": {attention: "0" * 64},
        "baselines": {
            name: 100 * value
            for name, value in (
                {"chance": 0.1, "majority": 0.17} if baselines is None else baselines
            ).items()
        },
        "metric": ACCURACY, "options": options or {attention: {}}, "parameters": 123_456,
        "expected_failures": failures or {}, "curve": [curve],
        "cost": cost if measured else None, "final": final if status == "ok" else None,
        "is_baseline": attention == "none" if is_baseline is None else is_baseline,
    })  # fmt: skip


@pytest.fixture
def record() -> Callable[..., Record]:
    """Makes a record."""
    return make_record
