"""The options of `harness run`."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from harness import arguments
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.runs import Execution

Natural = Annotated[int, {"min": 0}]


@dataclass(frozen=True, kw_only=True)
class RunOptions(arguments.Shared):
    """The options of `harness run`.

    Attributes:
        task: TASK, MODULE:CLASS, or TASK,TASK,...; repeatable; by default listops, or as --budget
            SUITE/QUESTION says.
        budget: Recipe: smoke, laptop, paper, a TOML file, or SUITE/QUESTION: laptop@3/recall.
        seeds: Seeds and ranges: 0-2,7; by default 0, with --tune 1-5; of a suite some of its own.
        positions: learned, rotary or none; by default learned, or as --budget SUITE/QUESTION says.
        compile: torch.compile; by default on CUDA only.
        engine: Engine of the runs, such as local, ray or slurm; see docs/grids.md.
        workers: Runs at once; 0 is 1 on this machine, and all that have room elsewhere.
        threads: CPU threads of a run; 0 is a worker's share of this machine, 1 elsewhere.
        slurm: NAME=VALUE for Slurm, as partition=gpu; repeatable.
        tune: Choose the learning rate on dev by seed 0, of four rates.
        grid: Another grid for --tune: train.FIELD=VALUE,VALUE,... or model.FIELD=...; repeatable
            for the product.
        over: Vary an option: NAME.OPTION=VALUE,VALUE,...; NAME is task, model, train, or a variant:
            task.pairs=4,8,16.
        match: parameters: the feed-forward width at which they are softmax's; of a suite, a row
            NAME[match=parameters].
        suite: Run what is missing of a suite: laptop, or a TOML file.
        questions: Of the suite, separated by commas; by default all.
        checks: Check variants of other packages before a suite; without, their rows are marked.
        cost: Measure time and memory after the runs, once for all seeds and learning rates.
        keep_checkpoints: Keep the weights of each evaluation.
        tensorboard: Folder for the curves as event files of TensorBoard.
    """

    task: list[str] | None = None
    budget: str = "laptop"
    seeds: str | None = None
    positions: str = ""
    compile: bool | None = None
    engine: str = "local"
    workers: Natural = 0
    threads: Natural = 0
    slurm: list[str] | None = None
    tune: bool = False
    grid: list[str] | None = None
    over: str = ""
    match: str = ""
    suite: str = ""
    questions: str = ""
    checks: bool = True
    cost: bool = True
    keep_checkpoints: bool = False
    tensorboard: Path | None = None


def execution(options: RunOptions) -> "Execution":
    from harness.engines import resources
    from harness.runs import Execution

    parameters = {n: value for n, _, value in (t.partition("=") for t in options.slurm or ())}
    if not all(name and value for name, value in parameters.items()):
        texts = " ".join(options.slurm or ())
        raise UserError(f"--slurm {texts}: give NAME=VALUE, as partition=gpu")
    used = resources(
        options.engine, workers=options.workers, threads=options.threads, device=options.device,
        parameters=parameters,
    )  # fmt: skip
    return Execution(
        store=options.store, resources=used, cost=options.cost, rerun=options.rerun,
        keep_outdated=options.keep_outdated, baselines=True, checks=options.checks,
        keep_checkpoints=options.keep_checkpoints, tensorboard=options.tensorboard,
    )  # fmt: skip
