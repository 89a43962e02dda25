"""The functions of the package `harness`: comparisons from Python, as data frames."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from zoo.registry import UserError, Value, checked

if TYPE_CHECKING:
    import pandas as pd


Text = Annotated[str, Field(min_length=1)]
Names = Text | Annotated[Sequence[Text], Field(min_length=1)]
Folders = Text | Path | Annotated[Sequence[Text | Path], Field(min_length=1)]
Seeds = Annotated[Sequence[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
Natural = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1, le=2**24)]
Lengths = Annotated[Sequence[Size], Field(min_length=1)]


@checked
def load(store: Folders = "runs") -> "pd.DataFrame":
    """Return the runs of one store or several, a row each; `docs/records.md` has the columns.

    The store `published` has the published runs. If several stores have a run, the last one counts.
    """
    from harness.records.frame import frame

    return frame(*folders_of(store))


@checked
def run(
    attention: Names, task: str | Sequence[Text] = "", seeds: Seeds | None = None, *,
    budget: Text = "laptop", positions: str = "", precision: str = "auto", device: str = "auto",
    store: Text | Path = "runs", workers: Natural = 0, threads: Natural = 0, cost: bool = True,
    tune: bool = False, **overrides: Mapping[str, Value],
) -> "pd.DataFrame":  # fmt: skip
    """Make the runs of every variant on every task with every seed; return a row for each.

    Args:
        attention: `A`, `A+B`, `MODULE:CLASS`, or several.
        task: name, `MODULE:CLASS`, or several; by default ListOps, or the task of a question.
        seeds: by default 0, with `tune` 1 to 5.
        budget: the recipe: `smoke`, `laptop`, `paper`, a TOML file, or `SUITE/QUESTION`.
        positions: `learned`, `rotary` or `none`; by default `learned`, or a question's.
        precision: `auto`, `bf16` or `fp32`; `auto` is fp32 on a CPU and bf16 on CUDA.
        device: `auto`, `cpu` or `cuda`.
        store: folder of the records; runs that it holds are not repeated.
        workers: runs at once; 0 for one.
        threads: CPU threads of a run; 0 for a worker's share of the machine.
        cost: whether to measure time and memory after the runs.
        tune: whether to choose the learning rate of each row on dev, by trials with seed 0.
        overrides: options that differ from the recipe, by `train`, `model`, variant or task.
    """
    from harness.arguments import registered, tasks_in
    from harness.engines import resources
    from harness.records.frame import of_records
    from harness.runs import Execution, compare

    names, tasks = registered(names_of(attention)), tasks_in(names_of(task))
    used = resources(device=device, workers=workers, threads=threads)
    outcomes, costs, _ = compare(
        names, [*filter(None, tasks)], Execution(store=Path(store), cost=cost, resources=used),
        seeds=seeds, budget=budget, precision=precision, positions=positions, settings=overrides,
        tune=tune,
    )  # fmt: skip
    return of_records([record for record, _ in outcomes], costs)


@checked
def cost(
    attention: str | Sequence[Text], lengths: Lengths = (256, 512, 1024, 2048, 4096), *,
    passes: Names = "train", level: str = "layer", batch: Text = "1", dim: Size = 64,
    heads: Size = 2, causal: bool = False, precision: str = "auto", device: str = "auto",
    store: Text | Path = "runs", rerun: bool = False, keep_outdated: bool = False,
    seconds: Annotated[float, Field(ge=0)] = 3.0, timeout: Annotated[float, Field(gt=0)] = 600.0,
    settings: Mapping[str, Mapping[str, Value]] | None = None,
    **options: Mapping[str, Value],
) -> "pd.DataFrame":  # fmt: skip
    """Measure time and memory against the number of tokens; return a row for each measurement.

    `docs/records.md`, section Costs, has the columns; the last rows are of softmax.

    Args:
        attention: `A`, `MODULE:CLASS`, or several; none, with `rerun`, repeats the measurements of
            this machine.
        lengths: tokens of a sample.
        passes: `forward`, `train`, `packed`, `prefill`, `decode`, or several.
        level: `layer`, or `step` for a whole model.
        batch: samples, or `tokens=K` for K tokens in all.
        dim: width of the model.
        heads: attention heads.
        causal: whether layers are causal.
        precision: as in `run`.
        device: as in `run`.
        store: folder of the records; measurements that it holds are not repeated.
        seconds: of sampling for a measurement, about.
        timeout: seconds of a measurement, at most.
        rerun: whether to repeat measurements of the store.
        keep_outdated: whether measurements of earlier code are results.
        settings: `options` whose name is that of another argument.
        options: by variant, or by `model` with level `step`.
    """
    from harness.arguments import registered
    from harness.costs.plan import measurements
    from harness.costs.sweep import measure_all, present
    from harness.records.frame import of_costs

    names = registered(names_of(attention))
    specs = measurements(
        names, lengths, names_of(passes), level=level, batching=batch, dim=dim, heads=heads,
        causal=causal, precision=precision, device=device, settings={**(settings or {}), **options},
    ) if names else present(Path(store), device, rerun=rerun)  # fmt: skip
    how = {"seconds": seconds, "timeout": timeout, "rerun": rerun, "keep_outdated": keep_outdated}
    return of_costs(measure_all(specs, Path(store), **how))


@checked
def check(
    name: Text, *, fast: bool = False, only: Sequence[Text] | None = None, **options: Value
) -> "pd.DataFrame":
    """Run the checks that the traits of a variant require, or those of a task; a row for each.

    `name` may be MODULE:CLASS; `fast` leaves out long inputs, large batches and the compiler;
    `only` names checks; `options` are of the variant or the task. Columns: `variant` or `task`,
    with the form, `group`, `check`, `passed`, `seconds`, and `detail`, the number that decided.
    """
    import pandas as pd

    from harness.checks import examine

    settings = {name.rpartition(":")[2]: options} if options else {}
    return pd.DataFrame(examine(name, settings, fast=fast, only=only)[0])


def pack(store: Path, out: Path, *, suite: str = "", row: str = "") -> tuple[list[Path], int]:
    """Write records of a store as lines; return the files, and the number of records.

    The lines are merged with the published records in `out`; if it is `store`, files become lines.
    With `suite` and `row`, as `primal[rank=8]` or MODULE:CLASS, a row is packed with its costs and
    certificates, else every record.
    """
    from harness.records.files import write_pages
    from harness.records.store import every_line, merged, require_folder

    require_folder(store)
    if bool(suite) != bool(row):
        raise UserError("--suite and --attention name a row together; give both, or none of them")
    if suite:
        from harness.rows import to_pack

        lines = to_pack(suite, row, store).lines
    elif not (lines := [*every_line(store)]):
        raise UserError(f"store {str(store)!r} has no record that is a file; give another --store")
    written = write_pages(merged(lines, out))
    for line in lines if out.resolve() == store.resolve() else ():
        line.source.unlink(missing_ok=True)
    return written, len(lines)


def names_of(names: Names) -> list[str]:
    """Return one or several names as a list."""
    return [names] if isinstance(names, str) else [*names]


def folders_of(stores: Folders | tuple[()]) -> list[Path]:
    """Return the folders of stores; `published` names the published records."""
    from harness.stores import PUBLISHED

    every = [stores] if isinstance(stores, str | Path) else stores
    return [PUBLISHED if store == "published" else Path(store) for store in every]
