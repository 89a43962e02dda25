"""Trials: models on real batches whose steps are timed, and what a store decides by a trial.

A trial may end in another way each time, where two candidates take almost the same time. The first
decision of a store holds for every run of it, on whichever process.
"""

import hashlib
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import RootModel

from harness.model import build_model
from harness.plan import Plan
from harness.records.files import read_model, write_atomic
from harness.records.store import Store
from harness.timing import Call
from harness.train import Trainer
from tasks.contract import Split

FILE = ".choices"
"""The file of a store: JSON, a value by key, without the suffix of records."""

LEAST_STEPS = 110
"""Steps of the recipe of a timed model, at least: its schedule must not end while it is timed."""

Choice = TypeVar("Choice", bound=str)

Decisions = RootModel[dict[str, str]]


def key_of(what: str, parts: object) -> str:
    """The key of a decision about `what`: equal where `parts` are equal, as JSON."""
    text = json.dumps(parts, sort_keys=True, default=str)
    return f"{what} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def choose(
    store: Store, key: str, choices: Collection[Choice], find: Callable[[], Choice | None]
) -> Choice | None:
    """The decision of a store by `key_of`, or what `find` finds, which then is the decision.

    Nothing is decided where `find` returns None: no trial is possible. A value in the file that is
    none of `choices` is ignored.
    """
    path = store.folder / FILE
    by_name: dict[str, Choice] = {choice: choice for choice in choices}
    kept = by_name.get(_read(path).get(key, ""))
    if kept is not None or (found := find()) is None:
        return kept
    store.require_writable()
    with store.locks.alone("choices"):
        decisions = _read(path)
        decisions[key] = decided = by_name.get(decisions.get(key, ""), found)
        write_atomic(path, json.dumps(decisions, indent=1, sort_keys=True).encode())
    return decided


def _read(path: Path) -> dict[str, str]:
    """The decisions of a file; none where it is damaged: they are made again."""
    decisions = read_model(path, Decisions)
    return decisions.root if decisions else {}


def trainer_of(plan: Plan, train: Split, compiled: bool | None = None) -> Trainer:
    """A new model of `plan` on batches of the task's length; `compiled` replaces the recipe's."""
    spec = plan.spec
    torch.manual_seed(spec.seed)
    recipe = spec.train.model_copy(
        update={
            "compiled": spec.train.compiled if compiled is None else compiled,
            # A cost is of batches of the task's length.
            "bucket_by_length": False,
            # Nor does it depend on the number of steps of the run.
            "steps": max(spec.train.steps, LEAST_STEPS),
        }
    )
    model = build_model(spec, plan.task).to(train.targets.device)
    return Trainer(model, train, recipe, spec.seed)


def training_call(trainer: Trainer) -> Call:
    """One training step."""

    def call() -> None:
        trainer.model.train()
        trainer.step(0)

    return call


def inference_call(trainer: Trainer) -> Call:
    """The evaluation of one batch, without gradients."""
    batch = trainer.train.gather(trainer.order.batch(0))

    @torch.inference_mode()
    def call() -> None:
        trainer.model.eval()
        trainer.scores(batch)

    return call
