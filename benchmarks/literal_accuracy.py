"""The accuracy of the literal model of the paper, trained by the harness's trainer.

Run: python -m benchmarks.literal_accuracy --task image --attention softmax+primal --seeds 0,1,2
Claim: `primal` and `softmax+primal` of the zoo are within 2 points of it, means over 3 seeds.

Steps, data order, precision and the choice of the checkpoint are those of `harness run` with the
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
from harness.records.outcome import Point
from harness.records.spec import RunSpec
from harness.train import Progress, Trainer, fit
from tasks.contract import SPLITS
from tests.literal.build import build

RESULTS = Path("results/benchmarks/literal_accuracy.jsonl")


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the literal model of the paper.")
    parser.add_argument("--task", required=True)
    parser.add_argument("--attention", required=True, choices=["primal", "softmax+primal"])
    parser.add_argument("--seeds", default="0", help="seeds, separated by commas")
    parser.add_argument("--budget", default="laptop")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    device = pick_device(arguments.device)
    for seed in map(int, arguments.seeds.split(",")):
        plan = resolve(
            Request(
                attention=arguments.attention,
                task=arguments.task,
                budget=arguments.budget,
                seed=seed,
                device=cast(Any, device.type),
                precision=pick_precision(arguments.precision, device),
                compiled=False,
            )
        )
        spec = plan.spec
        if spec.id in finished(arguments.out):
            print(f"{spec.attention} on {spec.task.key}, seed {seed}: in {arguments.out} already")
            continue
        row = {**identity(spec), **accuracies(plan), **machine(spec.device)}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        with arguments.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


def finished(results: Path) -> set[str]:
    """The identities of the runs in `results`."""
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    return {json.loads(line)["run"] for line in lines}


def identity(spec: RunSpec) -> dict[str, Any]:
    """What was trained; `run` is the identity of the zoo's run of the same specification."""
    return {
        "task": spec.task.key,
        "attention": spec.attention,
        "seed": spec.seed,
        "budget": spec.budget,
        "precision": spec.train.precision,
        "steps": spec.train.steps,
        "run": spec.id,
    }


def machine(device: str) -> dict[str, Any]:
    """The commit and the environment."""
    environment = describe(device).model_dump()
    return {"commit": environment.pop("commit"), "environment": environment}


def accuracies(plan: Plan) -> dict[str, float]:
    """Train; accuracies in [0, 1] of the checkpoint that was best on dev."""
    spec, device = plan.spec, torch.device(plan.spec.device)
    train, dev, test = (plan.data.splits[name].to(device) for name in SPLITS)
    torch.manual_seed(spec.seed)
    model = cast(Classifier, build(spec, plan.task).to(device))
    trainer, progress = Trainer(model, train, spec.train, spec.seed), Progress()

    def show(point: Point) -> None:
        if point.evaluated:
            print(f"seed {spec.seed}: {point.model_dump_json()}", flush=True)

    fit(trainer, dev, progress, on_point=show, save=lambda: None)
    trainer.model.load_state_dict(progress.best_state)
    return {
        "test_accuracy": trainer.evaluate(test).mean,
        "dev_accuracy": cast(float, progress.best) / 100,
        "best_step": progress.best_step,
        "train_seconds": round(progress.seconds, 1),
    }


if __name__ == "__main__":
    main()
