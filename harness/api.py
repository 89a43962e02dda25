"""The functions of the package `harness`: comparisons from Python, as data frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from zoo.registry import Value, checked

if TYPE_CHECKING:
    import pandas as pd

Text = Annotated[str, Field(min_length=1)]
Names = Text | Annotated[Sequence[Text], Field(min_length=1)]
Folders = Text | Path | Annotated[Sequence[Text | Path], Field(min_length=1)]
Seeds = Annotated[Sequence[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
Natural = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1, lt=2**24)]
Lengths = Annotated[Sequence[Size], Field(min_length=1)]


@checked
def load(store: Folders = "runs") -> "pd.DataFrame":
    """Return the runs of a store or of several, a row each; `docs/records.md` has the columns.

    The store `published` has the published runs. Of a run that several stores have, the record of
    the last one counts.
    """
    from harness.records.frame import frame

    return frame(*_folders(store))


@checked
def matrix(suite: Text = "laptop", store: Folders | None = None) -> "pd.DataFrame":
    """Return the matrix of a suite, a row for each variant that was run.

    Args:
        suite: its name, or a TOML file.
        store: a folder of records, or several; None for the published records.

    Returns:
        The columns of `reports.matrix.matrix`, with the form before each name:
        `causal.recall`, `causal.time.4096`, `bidirectional.time.4096`; and `outdated`, whether a
        run of the row is.
    """
    from harness import stores
    from harness.catalogue import described
    from harness.records.store import require_folder
    from harness.records.suites import find
    from reports.pages.suite import tables

    folders = [*map(require_folder, _folders(store or ()))] or stores.stores_of(None)
    found, of = stores.results_of(suite, *folders), find(suite)
    return tables(of, found.runs, found.rules, found.costs, described()).joined


@checked
def advise(
    needs: Names, length: Annotated[int, Field(ge=1)], operation: Text = "train", *,
    memory: Natural | None = None, suite: Text = "laptop", store: Text | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the variants that no other beats in accuracy, time and memory at once.

    Args:
        needs: questions of one form, or what their names begin with: `recall`.
        length: tokens of a sample, at which costs are compared.
        operation: `train`, `forward`, `prefill` or `decode`.
        memory: the most bytes of a sample; None for any.
        suite: its name, or a TOML file.
        store: records in addition to the published ones.

    Returns:
        See `reports.advice.rules.advise`; and the `query` and the `setting` of its costs.
    """
    from harness.advice import ask

    names = [needs] if isinstance(needs, str) else needs
    folder = Path(store) if store else None
    table, query, result = ask(names, operation, length, memory, suite=suite, store=folder)
    return {"query": query, "setting": table["setting"], **result}


@checked
def run(
    attention: Names, task: str | Sequence[Text] = "", seeds: Seeds | None = None, *,
    budget: Text = "laptop", positions: str = "", precision: str = "auto", device: str = "auto",
    store: Text | Path = "runs", workers: Natural = 0, threads: Natural = 0, cost: bool = True,
    tune: bool = False, **overrides: Mapping[str, Value],
) -> "pd.DataFrame":  # fmt: skip
    """Make the runs of every variant on every task with every seed; return a row for each.

    Args:
        attention: `A`, `A+B`, or several.
        task: its name, or several; by default ListOps, or the task of a question of a suite.
        seeds: of the runs; by default 0, with `tune` 1 to 5.
        budget: the recipe: `smoke`, `laptop`, `paper`, a TOML file, or a question, `laptop@2/copy`.
        positions: `learned`, `rotary` or `none`; by default `learned`, or a question's.
        precision: `auto`, `bf16` or `fp32`; `auto` is fp32 on a CPU and bf16 on CUDA.
        device: `auto`, `cpu` or `cuda`.
        store: folder of the records; a run that it holds is not repeated.
        workers: runs at once; 0 for one.
        threads: CPU threads of a run; 0 for a worker's share of the machine.
        cost: whether to measure time and memory after the runs.
        tune: whether to choose the learning rate of each row on dev, by trials with seed 0.
        overrides: options that differ from the recipe, by `train`, `model`, variant or task.
    """
    from harness.engines import resources
    from harness.records.frame import of_records
    from harness.runs import Comparison, Execution, make, measure

    names, tasks = map(_names, (attention, task))
    comparison = Comparison(
        attention=names, task=[*filter(None, tasks)], seeds=seeds, budget=budget, device=device,
        precision=precision, positions=positions, settings=overrides, tune=tune,
    )  # fmt: skip
    how = Execution(
        store=Path(store), cost=cost,
        resources=resources(device=device, workers=workers, threads=threads),
    )  # fmt: skip
    records = [record for record, _ in make(comparison, how)[0]]
    return of_records(records, measure(records, how))


@checked
def cost(
    attention: Names, lengths: Lengths = (256, 512, 1024, 2048, 4096), *, passes: Names = "train",
    level: str = "layer", batch: Text = "1", dim: Size = 64, heads: Size = 2, causal: bool = False,
    precision: str = "auto", device: str = "auto", store: Text | Path = "runs",
    seconds: Annotated[float, Field(ge=0)] = 3.0, rerun: bool = False,
    **options: Mapping[str, Value],
) -> "pd.DataFrame":  # fmt: skip
    """Measure time and memory against the number of tokens, beside softmax; a row a measurement.

    Args:
        attention: `A`, or several.
        lengths: tokens of a sample.
        passes: `forward`, `train`, `prefill`, `decode`, or several.
        level: `layer`, or `step` for a whole model.
        batch: samples, or `tokens=K` for K tokens in all.
        dim: width of the model.
        heads: attention heads.
        causal: whether layers are causal.
        precision: `auto`, `bf16` or `fp32`; `auto` is fp32 on a CPU and bf16 on CUDA.
        device: `auto`, `cpu` or `cuda`.
        store: folder of the records; a measurement that it holds is not repeated.
        seconds: of sampling for a measurement, about.
        rerun: whether to repeat them.
        options: by variant, or by `model` with level `step`.

    Returns:
        The columns of `docs/records.md`, section Costs; the last rows are of softmax.
    """
    from harness.costs.plan import CostRequest, measurements
    from harness.costs.sweep import measure_all
    from harness.records.frame import of_costs

    specs = measurements(CostRequest(
        attentions=_names(attention), lengths=lengths, operations=_names(passes), level=level,
        batching=batch, dim=dim, heads=heads, causal=causal, precision=precision, device=device,
        settings=options,
    ))  # fmt: skip
    return of_costs(measure_all(specs, Path(store), seconds=seconds, rerun=rerun))


@checked
def check(
    name: Text, *, fast: bool = False, only: Sequence[Text] = (), **options: Value
) -> "pd.DataFrame":
    """Run every check of a variant that its traits require, or of a task; a row for each.

    Args:
        name: a variant or a task, or MODULE:CLASS.
        fast: whether to leave out long inputs, large batches and the compiler.
        only: names of checks; by default all.
        options: of the variant or the task.

    Returns:
        `name` with its form, `check`, its `group`, `passed`, `seconds`, and `detail`, the number
        that decided.
    """
    import pandas as pd

    from harness.checks import checks_of, results_of

    return pd.DataFrame(results_of(checks_of(name, options, fast=fast, only=only)))


def _names(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else [*names]


def _folders(stores: Folders | tuple[()]) -> list[Path]:
    from harness.stores import PUBLISHED

    every = [stores] if isinstance(stores, str | Path) else stores
    return [PUBLISHED if store == "published" else Path(store) for store in every]
