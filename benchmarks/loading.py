"""The data of the Long Range Arena: how long they take to load, and their share of a step.

Run: python -m benchmarks.loading
Claim: all splits of a complete task are loaded from the cache in under 2 seconds, and gathering a
batch takes under 2 % of a training step of `primal` at the published recipe.

Data that are not in the cache are generated first, which takes minutes; data that must be imported
are reported as missing. Retrieval is measured on random papers, in as many pairs as the real data
have.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.turns import machine
from harness.measure import quartiles, take_turns
from harness.model import build_model
from harness.plan import Plan, Request, resolve
from harness.train import Trainer
from tasks.contract import SPLITS
from tasks.data import cache
from tasks.data.sources import base_key
from tasks.lra.retrieval import TEXT_BYTES, Retrieval
from zoo.registry import UserError

TASKS = ("listops", "text", "image", "pathfinder")
LOADS = 5

PAPERS = 20_000
"""Random papers of the largest length that is stored: no fewer bytes than the real data."""


def main() -> None:
    print(json.dumps(machine()))
    for name in TASKS:
        try:
            row = measured(planned(name))
        except UserError as error:
            row = {"error": str(error)}
        print(json.dumps({"task": name, **row}), flush=True)
    print(json.dumps({"task": "retrieval", **random_papers()}))


def random_papers() -> dict[str, object]:
    """`measured` of Retrieval with random papers, in as many pairs as the real data have."""
    generator = np.random.default_rng(0)
    arrays = {
        "values": generator.integers(32, 127, PAPERS * TEXT_BYTES, np.uint8),
        "ends": TEXT_BYTES * np.arange(1, PAPERS + 1),
    }
    for split, count in Retrieval.source().rows.items():
        arrays[f"{split}_pairs"] = generator.integers(0, PAPERS, (count, 2), np.int32)
        arrays[f"{split}_targets"] = generator.integers(0, 2, count, np.uint8)
    with (
        tempfile.TemporaryDirectory() as home,
        patch.dict(os.environ, {cache.HOME_VARIABLE: home}),
    ):
        cache.write(base_key(Retrieval), arrays)
        return {"papers": f"{PAPERS} random", **measured(planned("retrieval"))}


def planned(name: str) -> Plan:
    return resolve(
        Request(
            attention="primal", task=name, budget="paper", seed=0, device="cpu", precision="fp32",
            compiled=False,
        )
    )  # fmt: skip


def measured(plan: Plan) -> dict[str, object]:
    spec, task, train = plan.spec, plan.task, plan.data.splits["train"]
    loads = [seconds(lambda: [task.load(split) for split in SPLITS]) for _ in range(LOADS)]
    trainer = Trainer(build_model(spec, task, plan.composition), train, spec.train, spec.seed)
    numbers = iter(range(spec.train.steps))
    gathers, steps = take_turns(
        [
            lambda: train.gather(trainer.order.batch(next(numbers))),
            lambda: trainer.step(next(numbers)),
        ],
        torch.device("cpu"),
    )
    share = quartiles(100 * gather / step for gather, step in zip(gathers, steps, strict=True))
    return {
        "seconds to load": quartiles(loads).model_dump(),
        "milliseconds to gather": quartiles(1000 * one for one in gathers).model_dump(),
        "milliseconds of a step": quartiles(1000 * one for one in steps).model_dump(),
        "percent of a step": share.model_dump(),
    }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
