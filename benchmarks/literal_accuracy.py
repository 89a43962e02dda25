"""The accuracy of the literal model of the paper, trained by the harness's trainer.

Run: python -m benchmarks.literal_accuracy --task image --attention softmax+primal --seeds 0,1,2
Claim: `primal` and `softmax+primal` of the zoo are within 2 points of it, means over 3 seeds.

Steps, data order, precision and the choice of the checkpoint are as in `harness run` with the
same arguments. Each run appends one JSON line to results/benchmarks/literal_accuracy.jsonl; a run
that the file contains already is not repeated.
"""

import argparse
import json
from pathlib import Path
from typing import Any, cast

import torch

from harness.classifier import Classifier
from harness.environment import describe, pick_device, pick_precision
from harness.plan import Plan, Request, resolve
from harness.records.record import Point
from harness.train import Progress, Trainer, fit
from tasks.contract import SPLITS
from tests.literal.build import build

RESULTS = Path("results/benchmarks/literal_accuracy.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the literal model of the paper.")
    parser.add_argument("--task", required=True)
    parser.add_argument("--attention", required=True, choices=["primal", "softmax+primal"])
    parser.add_argument("--seeds", default="0", help="seeds, separated by commas")
    for name, default in (("budget", "laptop"), ("device", "auto"), ("precision", "auto")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    device, out = pick_device(options.device), options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    for seed in map(int, options.seeds.split(",")):
        plan = resolve(
            Request(
                attention=options.attention, task=options.task, recipe=options.budget, seed=seed,
                device=cast(Any, device.type), compiled=False,
                precision=pick_precision(options.precision, device),
            )
        )  # fmt: skip
        lines = out.read_text("utf-8").splitlines() if out.exists() else []
        if plan.spec.id in {json.loads(line)["run"] for line in lines}:
            print(f"{options.attention} on {plan.task.key}, seed {seed}: in {out} already")
            continue
        line = json.dumps(row_of(plan))
        with out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        print(line, flush=True)


def row_of(plan: Plan) -> dict[str, Any]:
    """Train; accuracies in [0, 1] of the checkpoint that was best on dev.

    `run` is the identity of the run of the zoo.
    """
    spec, environment = plan.spec, describe(plan.spec.device).model_dump()
    train, dev, test = (plan.data.splits[name].to(torch.device(spec.device)) for name in SPLITS)
    torch.manual_seed(spec.seed)
    model = cast(Classifier, build(spec, plan.task).to(spec.device))
    trainer, progress = Trainer(model, train, spec.train, spec.seed), Progress()

    def show(point: Point) -> None:
        if point.dev is not None:
            print(f"seed {spec.seed}: {point.model_dump_json()}", flush=True)

    fit(trainer, dev, progress, on_point=show, save=lambda: None)
    trainer.model.load_state_dict(progress.best_state)
    return {
        "task": spec.task.key, "attention": spec.attention, "seed": spec.seed,
        "budget": spec.budget, "precision": spec.train.precision, "steps": spec.train.steps,
        "run": spec.id, "test_accuracy": trainer.evaluate(test).mean,
        "dev_accuracy": cast(float, progress.best) / 100, "best_step": progress.best_step,
        "train_seconds": round(progress.seconds, 1), "commit": environment.pop("commit"),
        "environment": environment,
    }  # fmt: skip


if __name__ == "__main__":
    main()
