"""Time of generating Pathfinder's images, over that of training on them once and of one process."""

import time
from collections.abc import Iterator

from benchmarks.claims import Claim, Finding, Setting
from benchmarks.workloads import fastest, plan_of, shape_of, trainer_of
from harness.measure import quartiles, time_alternately
from tasks.lra.pathfinder import Pathfinder

WORKERS = 2
BATCH = 32

CLAIMS = [
    Claim(
        name="pathfinder-generation",
        what=f"Time of generating an image with {WORKERS} processes over that of training on it "
        "once, a step of primal",
        bounds={"cpu": 0.1},
        limit="The data are generated once and cached: the published run uses an image 100 times.",
    ),
    Claim(
        name="pathfinder-processes",
        what=f"Time of generating images with {WORKERS} processes over that with one",
        bounds={"cpu": 0.65},
        limit=f"{1 / WORKERS}, where the machine has that many free cores.",
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    images = setting.size(2000, 20)
    few = {"train": 2 * BATCH, "dev": BATCH, "test": BATCH}
    settings = {"pathfinder": few, "train": {"batch": setting.size(BATCH, 4)}}
    plan = plan_of(setting, "primal", "pathfinder", "paper", fastest(setting), settings)
    trainer = trainer_of(plan, setting)
    (steps,) = time_alternately([lambda: trainer.step(0)], setting.device, rounds=5)
    tenth = images // 10
    task = Pathfinder(train=images - 2 * tenth, dev=tenth, test=tenth)
    alone, together = [], []
    for _ in range(3):
        alone.append(seconds_by(task, 1) / images)
        together.append(seconds_by(task, WORKERS) / images)
    training = quartiles(one / plan.spec.train.batch for one in steps).median
    figures = {
        f"{WORKERS} processes (ms)": quartiles(1000 * one for one in together),
        "one process (ms)": quartiles(1000 * one for one in alone),
    }
    yield Finding(
        name="pathfinder-generation",
        setting=f"{images:,} images; {shape_of(plan)}, {plan.spec.train.precision}",
        ratios=[one / training for one in together],
        figures=figures,
    )
    yield Finding(
        name="pathfinder-processes",
        setting=f"{images:,} images",
        ratios=[b / a for a, b in zip(alone, together, strict=True)],
        figures=figures,
    )


def seconds_by(task: Pathfinder, workers: int) -> float:
    """Seconds of generating the task with a number of processes."""
    start = time.perf_counter()
    task.generate_by(workers)
    return time.perf_counter() - start
