"""The cost of one attention layer, or of one model, at one length: specification and record."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from harness.records.fields import (
    Count,
    Device,
    Frozen,
    Identified,
    Natural,
    Positive,
    Precision,
    Quartiles,
    Seconds,
    Time,
)
from harness.records.record import Environment
from harness.records.spec import Model, RunSpec, TaskSpec, TrainSpec, label_of
from harness.records.versions import line_of
from zoo.registry import Value

Level = Literal["layer", "step"]  # An attention layer, or a whole model with its optimiser
# `packed` trains on rows of sequences, each half as long as the one before; `prefill` returns the
# state of a prompt, and `decode` is a token after it.
Pass = Literal["forward", "train", "packed", "prefill", "decode"]
LEVELS: tuple[Level, ...] = get_args(Level)
PASSES: tuple[Pass, ...] = get_args(Pass)
REVISIONS: dict[Pass, int] = {"prefill": 2}  # Passes whose call has changed

# The variant that every cost is compared with, and its backend of fused kernels.
REFERENCE, SDPA = "softmax", "sdpa"
# Names of implementations; all others are PyTorch operations.
COMPUTED_BY = {
    "sdpa": "library", "xformers": "library", "library": "library", "recurrent": "compiled loops",
}  # fmt: skip

# `skipped`: a shorter length of the same row did not end in `ok`.
CostStatus = Literal["ok", "out_of_memory", "timeout", "crashed", "failed", "skipped"]
FAILURES: tuple[CostStatus, ...] = ("crashed", "failed")


def batching_of(text: str) -> tuple[str, int]:
    # `8` (`batch`), or `tokens=16384`.
    name, equals, count = text.rpartition("=")
    if (name, equals) not in (("", ""), ("tokens", "=")):
        raise ValueError(f"{text!r} is neither a number nor tokens=K")
    return name or "batch", int(count)


# Recipe fields that do not change the cost of a step: runs at other rates share costs.
STEP: Mapping[str, Any] = {
    "steps": 1, "warmup": 0, "lr": 1e-4, "betas": (0.9, 0.999), "cycle_momentum": False,
    "eps": 1e-6, "weight_decay": 0.0, "evaluations": 1, "bucket_by_length": False,
    "schedule": "one-cycle", "best_on_test": False, "stop_at": None,
}  # fmt: skip


class CostSpec(Identified):
    attention: str  # The variant, or `A+B` if `level` is `step`
    # Those that differ from the defaults, by variant; in `overrides` by `VARIANT.OPTION`
    options: dict[str, dict[str, Value]]
    overrides: dict[str, Value] = Field(default={})
    level: Level
    operation: Pass
    length: Count  # Tokens of a sample, or of the prompt if `operation` is `decode`
    batch: Count
    batching: str  # A number of samples, or `tokens=K` for K tokens in all
    dim: Count
    heads: Count
    causal: bool
    model: Model | None  # None if `level` is `layer`
    precision: Precision
    device: Device
    machine: str
    threads: Count
    revision: Count = 1
    # The task of a step of a run, without digests; None for random tokens
    task: TaskSpec | None = None
    train: TrainSpec | None = None  # The recipe of a step of a run, with the values of `STEP`

    @property
    def superseded(self) -> bool:
        return self.revision != REVISIONS.get(self.operation, 1)

    @property
    def row(self) -> str:
        return label_of(self.attention, self.overrides)

    @property
    def file_name(self) -> str:
        attention = re.sub(r"[*()]", "-", self.attention)
        return f"{attention}-{self.level}-{self.operation}-{self.device}-n{self.length}-{self.id}"

    @property
    def shape(self) -> str:
        # The same on any machine and in any precision.
        any_machine = {"device": "cpu", "machine": "", "threads": 1, "precision": "fp32"}
        return self.model_copy(update=any_machine).id

    def model_post_init(self, _: Any) -> None:
        if (self.model is None) != (self.level == "layer"):
            raise ValueError("a model is given if and only if level is step")
        if self.operation in ("prefill", "decode") and not self.causal:
            raise ValueError(f"{self.operation} is causal; give causal=True")
        if (self.task is None) != (self.train is None) or (self.task and self.level != "step"):
            raise ValueError("task and train are given together, and where level is step")


def step_recipe(train: TrainSpec) -> TrainSpec:
    return train.model_copy(update=STEP)


def step_of(spec: RunSpec | CostSpec) -> str:
    # Empty unless it is the training step of a run.
    if spec.task is None or spec.train is None or spec.model is None:
        return ""
    parts = [
        spec.attention, spec.options, spec.task.key, spec.model.model_dump(mode="json"),
        step_recipe(spec.train).model_dump(mode="json"), spec.device,
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def softmax_by(backend: str, options: dict[str, dict[str, Value]]) -> dict[str, dict[str, Value]]:
    if "backend" in options.get(REFERENCE, {"backend": ""}):
        return options
    return {**options, REFERENCE: {**options[REFERENCE], "backend": backend}}


class Limits(Frozen):
    """The rates of the device: bytes read and written in a large copy, and a matrix product."""

    bytes_per_second: Positive
    flops_per_second: Positive


class Measured(Frozen):
    seconds: Quartiles  # Of one call
    samples: Count
    # Seconds relative to softmax by `reference`, measured alternately; None if SDPA softmax has too
    # little memory or time, see `no_ratio`
    ratio: Quartiles | None
    no_ratio: str
    peak_bytes: Natural  # Peak memory that one call of `memory_batch` samples allocates
    # `memory_bytes`, which include the state, relative to SDPA softmax
    memory_ratio: Positive | None
    flops: Natural  # Floating-point operations in matrix products of one call, counted
    # By the variant's formula; None without one, for a model and for a decoded token
    analytic_flops: Natural | None
    backend: str  # The implementation of the layers; empty if the variant has only one
    required_bytes: Count  # Bytes that any layer of this shape reads and writes in one call
    parameters: Natural
    state_bytes: Natural | None  # Memory of the decoding state of all samples
    limits: Limits
    reference: str  # The backend of the fastest exact softmax in this precision; empty without one
    memory_batch: Count
    memory_bytes: Count
    # Of the layer or model with softmax; None in earlier records
    softmax_parameters: Natural | None = None

    @property
    def over_limit(self) -> float:
        # The formula, if there is one, excludes what an implementation computes again.
        transfer = self.required_bytes / self.limits.bytes_per_second
        flops = min(self.flops, self.analytic_flops or self.flops)
        return self.seconds.median / max(transfer, flops / self.limits.flops_per_second)


class CostRecord(Frozen):
    schema_version: Literal[4] = 4
    spec: CostSpec
    status: CostStatus
    reason: str
    started: Time
    seconds: Seconds  # Of the whole measurement, with the start of its process
    environment: Environment
    versions: Mapping[str, str]  # The version of each variant, and of softmax
    options: dict[str, dict[str, Value]]
    claims_linear: bool  # Whether the variants claim time and memory linear in the length
    measured: Measured | None = None

    def model_post_init(self, _: Any) -> None:
        if (self.status == "ok") != (self.measured is not None):
            raise ValueError("a record has measurements if and only if its status is ok")

    @property
    def version(self) -> str:
        return line_of(self.versions)

    @property
    def tokens_per_second(self) -> Quartiles | None:
        tokens = Quartiles.of([float(self.spec.batch * self.spec.length)])
        return tokens / self.measured.seconds if self.measured else None

    @property
    def computed_by(self) -> str:
        # Joined by `+` for A+B. PyTorch operations always compute a decoded token.
        if self.measured is None or self.spec.operation == "decode":
            return "" if self.measured is None else "PyTorch"
        names = self.measured.backend.split("+")
        return "+".join(dict.fromkeys(COMPUTED_BY.get(name, "PyTorch") for name in names))
