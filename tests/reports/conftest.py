"""Synthetic records: every argument is something that a test may want to vary."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

from harness.catalogue import described
from harness.recipes import declared
from harness.records import frame
from harness.records.answers import CorrectAnswers
from harness.records.cost import CostRecord, step_recipe
from harness.records.record import Record
from harness.records.suites import Suite, find
from harness.records.versions import TRAINING
from harness.records.versions import built_in as versions_now
from reports.pages.suite import Tables, tables
from reports.suite_results import SuiteResults, results
from tasks.metrics import Metric

SNAPSHOTS = Path(__file__).parent / "snapshots"
"""Approved pages; a test that fails leaves what it found beside them, to be read and renamed."""


def snapshot(name: str, text: str) -> None:
    """Compare the tables of a page, or the whole of another file, with the approved ones."""
    if name.endswith((".md", ".txt")):
        kept = (line for line in text.splitlines() if line.startswith("|") or "  " in line)
        text = "\n".join(kept) + "\n"
    approved, found = SNAPSHOTS / name, SNAPSHOTS / f"{name}.found"
    if approved.exists() and approved.read_text("utf-8") == text:
        found.unlink(missing_ok=True)
        return
    found.write_text(text, "utf-8")
    assert text == approved.read_text("utf-8"), f"compare {found} with {approved}"


def csv_lines(content: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(content.decode().splitlines())]


ACCURACY = Metric(name="accuracy", unit="%", better="higher", digits=1, scale=100, chance=10.0)


def version_of_now(attention: str) -> str:
    """The version of a variant, or one of a plug-in that is not installed."""
    return versions_now().get(attention, "1.0")


def make_record(
    attention: str = "softmax", *, seed: int = 0, accuracy: float = 0.5, status: str = "ok",
    reason: str = "", options: Mapping[str, Mapping[str, object]] = {}, task: str = "listops",
    key: str = "", budget: str = "paper", train: Mapping[str, object] = {},
    model: Mapping[str, object] = {}, overrides: Mapping[str, object] = {}, device: str = "cuda",
    machine: str = "NVIDIA H100", threads: int = 2, commit: str = "abc1234",
    failures: Mapping[str, str] = {}, examples: int = 2000, correct: Sequence[bool] | None = None,
    is_baseline: bool | None = None, started: str = "2026-11-21T08:00:00Z", role: str = "",
    rates: Sequence[float] = (1e-3, 1e-2), version: str = "", declared: str = "", match: str = "",
) -> Record:  # fmt: skip
    """A record, finished unless `status` is another; `correct` gives its answers.

    `accuracy` is a fraction.
    """
    if correct is not None:
        accuracy, examples = sum(correct) / len(correct), len(correct)
    first, depth = attention.partition("+")[0], int(model.get("depth", 2))
    suite, _, in_suite = budget.rpartition("/")
    fields = [path for path in overrides if path.startswith(("model.", "train."))]
    tuned = [*(["train.lr"] if role else []), *(["model.feed_forward"] if match else [])]
    texts = ", ".join(f"{path}={overrides[path]}" for path in sorted({*fields} - {*tuned}))
    name = f"{key or f'{task}@1'}, recipe {budget}{f' with {texts}' * bool(texts)}"
    name += f", {match} matched" * bool(match)
    name += f" tuned over train.lr {', '.join(map(str, rates))}" * bool(role)
    question = {
        "name": in_suite if suite else name, "suite": suite, "recipe": budget,
        "declared": declared if suite else "",
        "task": {"name": task, "key": key or f"{task}@1", "options": {}},
        "model": {"kind": "encoder", "depth": 2, "dim": 64, "heads": 2, "feed_forward": 128,
                  "head": 128, "dropout": 0.1, "attention_dropout": 0.0, "positions": "learned",
                  **model},
        "train": {"batch": 32, "steps": 5000, "warmup": 1000, "lr": 1e-4, "betas": [0.9, 0.999],
                  "cycle_momentum": False, "eps": 1e-6, "weight_decay": 0.0, "evaluations": 10,
                  "precision": "bf16", "compiled": False, **train},
    }  # fmt: skip
    values = {}
    if match:
        question["match"], values["model.feed_forward"] = match, question["model"]["feed_forward"]
        question["model"]["feed_forward"] = 128
    if role:
        values["train.lr"] = question["train"]["lr"]
        question["train"]["lr"], question["grid"] = 1e-3, {"train.lr": [*rates]}
    spec = {
        "question": question, "attention": attention, "options": options or {attention: {}},
        "layers": [*[first] * (depth - 1), attention.rpartition("+")[2]],
        "overrides": {path: v for path, v in overrides.items() if path not in fields},
        "values": values, "role": role, "seed": seed, "device": device,
        "data": {"test": "0" * 64},
    }  # fmt: skip
    final = {
        "score": 100 * accuracy, "test_examples": examples, "dev": 100 * min(1, accuracy + 0.01),
        "best_step": 400, "train_seconds": 100.0, "seconds": 200.0,
    }  # fmt: skip
    if correct is not None:
        final["sample"] = CorrectAnswers.pack(correct, [1] * len(correct)).model_dump()
    return Record.model_validate({
        "spec": spec, "status": status, "reason": reason, "started": started,
        "environment": {
            "device": machine, "threads": threads, "memory_gib": 79.6, "system": "Linux x86_64",
            "versions": {"torch": "2.13.0", "python": "3.12.3"}, "commit": commit,
        },
        "versions": {attention: version or version_of_now(attention)}, "training": TRAINING,
        "metric": ACCURACY, "options": options or {attention: {}}, "parameters": 123_456,
        "flops": 7_890_000_000, "expected_failures": failures,
        "curve": [{"step": 300, "seconds": 1.0, "loss": 2.0, "losses": {}}],
        "final": final if status == "ok" else None,
        "is_baseline": attention == "none" if is_baseline is None else is_baseline,
    })  # fmt: skip


def changed(record: Any, part: str, **fields: Any) -> Any:
    return record.model_copy(update={part: getattr(record, part).model_copy(update=fields)})


def make_cost(
    attention: str, length: int, *, seconds: float = 1.0, ratio: float = 1.0, status: str = "ok",
    reason: str = "", **changes: Any,
) -> CostRecord:  # fmt: skip
    """A measurement of a layer in training; `changes` are fields of its specification."""
    spec = {
        "attention": attention, "options": {attention: {}}, "level": "layer", "length": length,
        "operation": "train", "batch": 2048 // length, "batching": "tokens=2048", "dim": 64,
        "heads": 2, "causal": False, "model": None, "precision": "fp32", "device": "cpu",
        "machine": "CPU", "threads": 2, **changes,
    }  # fmt: skip
    time, relative = ({"q1": 0.9 * of, "median": of, "q3": 1.2 * of} for of in (seconds, ratio))
    measured = {
        "seconds": time, "samples": 9, "peak_bytes": 512 * length, "flops": 10**9,
        "reference": "naive", "memory_batch": 1, "memory_bytes": 512 * length,
        "analytic_flops": None, "backend": "",
        "ratio": relative, "no_ratio": "", "memory_ratio": 0.5, "required_bytes": 10**6,
        "parameters": 100, "state_bytes": None,
        "limits": {"bytes_per_second": 1e9, "flops_per_second": 1e10},
    }  # fmt: skip
    return CostRecord.model_validate({
        "spec": spec, "status": status, "reason": reason, "started": "2026-11-23T08:00:00Z",
        "seconds": 4.0, "options": {attention: {}}, "claims_linear": attention != "softmax",
        "measured": measured if status == "ok" else None,
        "versions": {attention: version_of_now(attention)},
        "environment": {"device": spec["machine"], "threads": spec["threads"],
                        "memory_gib": 8, "system": "Linux", "versions": {}, "commit": "abc"},
    })  # fmt: skip


def costs_of(run: Record, *, seconds: float = 0.1, mib: float = 300.0) -> list[CostRecord]:
    # Those of its step; the fastest softmax takes 0.2 seconds and 400 MiB.
    spec, found = run.spec, []
    for operation, share in (("train", 1.0), ("forward", 0.5)):
        step = make_cost(
            spec.attention, 2000, seconds=seconds, ratio=share * seconds / 0.2,
            level="step", operation=operation, batch=32, batching="32", device=spec.device,
            machine=run.environment.device, threads=run.environment.threads, precision="bf16",
            model=spec.model.model_dump(), options=spec.options,
            train=step_recipe(spec.train).model_dump(),
            task=spec.question.task.model_dump(),
        )  # fmt: skip
        step = step.model_copy(update={"versions": run.versions})
        fields = {"peak_bytes": round(mib * 2**20), "memory_ratio": mib / 400}
        found.append(changed(step, "measured", softmax_parameters=123_456, **fields))
    return found


SUITE = """
title = "Two questions"
version = 1
rows = ["softmax", "primal", { attention = "linear", options.linear.chunk = 8 }, "none"]

[cost]
lengths = [256, 512, 1024]
passes = ["train", "decode"]
precision = "fp32"
dim = 64
heads = 2
batch = { train = "tokens=2048", decode = "1" }

[all]
precision = "fp32"
positions = "none"
rates = [1e-3, 1e-2]
seeds = [1, 2, 3]
model = { depth = 2 }
train = { steps = 5000 }

[questions.recall]
title = "recall"
asks = "Recall pairs."
task = "mqar"

[questions.copy]
title = "copy"
asks = "Copy symbols."
task = "copying"
options = { causal = false }
note = "More steps help."
"""

ACCURACIES = {
    "recall": {"softmax": 0.98, "primal": 0.7, "linear": 0.3, "none": 0.1},
    "copy": {"softmax": 0.7, "primal": 0.72, "none": 0.1},
}
"""In the suite of `suite_frames`; the strongest rule of either task has 0.3."""


class SuiteFrames(NamedTuple):
    """The frames of a suite, and what is made of them, or of others that are named."""

    suite: Suite
    runs: pd.DataFrame
    baselines: pd.DataFrame
    costs: pd.DataFrame

    def tables(self, **others: Any) -> Tables:
        return tables(*self._replace(**others), described())

    def results(self, **others: Any) -> SuiteResults:
        suite, runs, baselines, _ = self._replace(**others)
        return results(runs, suite, baselines)

    def answers(self, **others: Any) -> pd.DataFrame:
        return self.results(**others).answers().set_index(["question", "row"])


@pytest.fixture
def suite_records(tmp_path) -> list[Record]:
    """Four seeds of four rows on the two questions of `mine.toml`."""
    (tmp_path / "mine.toml").write_text(SUITE)
    return [
        make_record(
            attention, seed=seed, task={"recall": "mqar"}.get(question, "copying"),
            correct=[*map(bool, np.random.default_rng(seed).random(2000) < accuracy)],
            options={attention: {"chunk": 8} if attention == "linear" else {}},
            overrides={"linear.chunk": 8} if attention == "linear" else {},
            budget=f"mine@1/{question}", role="trial" if seed == 4 else "final",
            model={"positions": "none"}, train={"precision": "fp32"},
            declared=declared(find(str(tmp_path / "mine.toml")))[question],
        )
        for question, accuracies in ACCURACIES.items()
        for attention, accuracy in accuracies.items()
        for seed in (1, 2, 3, 4)
    ]  # fmt: skip


@pytest.fixture
def suite_frames(suite_records, tmp_path) -> SuiteFrames:
    runs = frame.of_records(suite_records)
    rules = pd.DataFrame({"name": ["chance", "rule"], "score": [10.0, 30.0]})
    rules = pd.DataFrame({"data": runs["data"].unique()}).merge(rules, how="cross")
    return SuiteFrames(find(str(tmp_path / "mine.toml")), runs, rules, suite_costs())


def suite_costs() -> pd.DataFrame:
    """Of three rows: `primal` is faster from 512 tokens, `linear` is always slower.

    A causal layer takes twice the time of softmax that a bidirectional one takes.
    """
    ratios = {"softmax": (1, 1, 1), "primal": (2, 0.9, 0.4), "linear": (3, 2, 1.5)}
    changes = {"linear": {"overrides": {"linear.chunk": 8}}}
    records = [
        make_cost(attention, length, ratio=ratio * (1 if attention == "softmax" else times),
                  **changes.get(attention, {}), **how)
        for attention, values in ratios.items()
        for length, ratio in zip((256, 512, 1024), values, strict=True)
        for times, how in (
            (1, {}), (2, {"causal": True}),
            (1, {"operation": "decode", "causal": True, "batch": 1, "batching": "1"}),
        )
    ]  # fmt: skip
    found = frame.of_costs(records)
    return found.assign(state_bytes=np.where(found["pass"] == "decode", found["length"], np.nan))
