"""Runs comparisons of attention variants, and reads their records as data frames.

harness.run("primal", task="mqar", seeds=[0, 1], train={"steps": 100}, primal={"rank": 8})
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from zoo.registry import Value

__all__ = ["load", "run"]


def load(store: Path | str = "runs") -> "pd.DataFrame":
    """The runs of a store, a row each; for its columns see `docs/records.md`.

    Raises:
        UserError: the folder cannot be listed.
    """
    from harness.records.frame import frame

    return frame(store)


def run(
    attention: str | Sequence[str],
    task: str | Sequence[str] = "",
    seeds: Sequence[int] = (0,),
    *,
    budget: str = "laptop",
    positions: str = "",
    precision: str = "auto",
    device: str = "auto",
    store: Path | str = "runs",
    workers: int = 0,
    threads: int = 0,
    cost: bool = True,
    **overrides: "Mapping[str, Value]",
) -> "pd.DataFrame":
    """The runs of every variant on every task with every seed, as `harness run` makes them.

    Args:
        attention: `A`, `A+B`, or several.
        task: its name, or several; by default ListOps, or the task of a question of a suite.
        seeds: of the runs.
        budget: the recipe: `smoke`, `laptop`, `paper`, a TOML file, or a question, `laptop@1/copy`.
        positions: `learned`, `rotary` or `none`; by default `learned`, or a question's.
        precision: `auto`, `bf16` or `fp32`; `auto` is fp32 on a CPU and bf16 on CUDA.
        device: `auto`, `cpu` or `cuda`.
        store: folder of the records; a run that it holds is not repeated.
        workers: runs at once.
        threads: CPU threads of a run.
        cost: whether to measure time and memory.
        overrides: options that differ from the recipe, by `train`, `model`, variant or task.

    Raises:
        UserError: a name or a value is unknown, or out of range.
    """
    from harness.cli.run import RunOptions, train
    from harness.records.frame import of_records

    names, tasks = ([n] if isinstance(n, str) else [*n] for n in (attention, task))
    options = RunOptions(
        attention=names, task=[*filter(None, tasks)], seeds=",".join(map(str, seeds)),
        set_=[f"{owner}.{n}={v}" for owner, values in overrides.items() for n, v in values.items()],
        budget=budget, device=device, precision=precision, positions=positions, store=Path(store),
        workers=workers, threads=threads, cost=cost,
    )  # fmt: skip
    return of_records(record for record, _ in train(options)[0])
