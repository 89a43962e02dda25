"""The data of each task of the arena: how long they take to load, and their share of a step.

Run: python -m benchmarks.loading
Claim: all splits of a full task that is cached are loaded in under 2 seconds, and gathering a batch
takes under 2 % of a training step of `primal` at the published recipe.

A set that is not there is generated first, which takes minutes; what must be fetched is named.
"""

import json
import time
from collections.abc import Callable

import torch

from benchmarks.turns import machine
from harness.budgets import Request, plan
from harness.data import find_task
from harness.encoder import build
from harness.measure import quartiles, take_turns
from harness.spec import RunSpec
from harness.train import Trainer
from tasks.contract import SPLITS
from zoo.registry import Refused

TASKS = ("listops", "text", "retrieval", "image", "pathfinder")
LOADS = 5


def main() -> None:
    print(json.dumps(machine()))
    for name in TASKS:
        try:
            row = measured(planned(name))
        except Refused as refusal:
            row = {"refused": str(refusal)}
        print(json.dumps({"task": name, **row}), flush=True)


def planned(name: str) -> RunSpec:
    return plan(
        Request(
            attention="primal", task=name, budget="paper", seed=0, device="cpu", precision="fp32",
            compiled=False,
        )
    )  # fmt: skip


def measured(spec: RunSpec) -> dict[str, object]:
    task = find_task(spec)
    train = task.load("train")
    loads = [seconds(lambda: [task.load(split) for split in SPLITS]) for _ in range(LOADS)]
    trainer = Trainer(build(spec, task), train, spec.train, spec.seed)
    numbers = iter(range(spec.train.steps))
    gathers, steps = take_turns(
        [
            lambda: train.gather(trainer.order.batch(next(numbers))),
            lambda: trainer.step(next(numbers)),
        ],
        torch.device("cpu"),
    )
    share = quartiles(100 * own / step for own, step in zip(gathers, steps, strict=True))
    return {
        "seconds to load": quartiles(loads).model_dump(),
        "milliseconds to gather": quartiles(1000 * own for own in gathers).model_dump(),
        "milliseconds of a step": quartiles(1000 * own for own in steps).model_dump(),
        "percent of a step": share.model_dump(),
    }


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
