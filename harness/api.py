"""The functions of the package `harness`: comparisons from Python, as data frames.

They, and those of `FACE`, are all that the command line calls.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from zoo.registry import UserError, Value, checked, unknown

if TYPE_CHECKING:
    import pandas as pd

    from harness.records.overview import Entry
    from reports.advice import Values

FACE: Mapping[str, str] = {
    "harness.catalogue": "listed", "harness.checks": "examine",
    "harness.costs.plan": "CostRequest", "harness.engines": "resources",
    "harness.first": "first text=first_text", "harness.recipes": "show=recipe_text",
    "harness.records.store": "require_folder", "harness.rows": "check_row",
    "harness.records.suites": "find=suite_of show=suite_text",
    "harness.report": "comparison matrix_of results_in summary"
    " write_costs write_report write_site write_study",
    "harness.runs": "Comparison Execution Shown compare fit_baselines measured",
    "harness.stores": "content require_records", "harness.studies": "find=study_of names=studies",
    "harness.suite": "hours run_suite", "tasks.control.environment": "record",
    "tasks.data.sources": "fetch_data import_all status=data_sets",
    "tasks.data.trajectories": "write=write_trajectories",
}  # fmt: skip
"""Further functions and classes of commands, by module, each with the name that it has here."""

NAMES = {
    name.rpartition("=")[2]: f"{module}:{name.partition('=')[0]}"
    for module, names in FACE.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported when it is used: the import of torch takes seconds.
    return resolve_name(NAMES[name])


Text = Annotated[str, Field(min_length=1)]
Names = Text | Annotated[Sequence[Text], Field(min_length=1)]
Folders = Text | Path | Annotated[Sequence[Text | Path], Field(min_length=1)]
Seeds = Annotated[Sequence[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
Natural = Annotated[int, Field(ge=0)]
Size = Annotated[int, Field(ge=1, le=2**24)]
Lengths = Annotated[Sequence[Size], Field(min_length=1)]


@checked
def load(store: Folders = "runs") -> "pd.DataFrame":
    """Return the runs of a store or of several, a row each; `docs/records.md` has the columns.

    The store `published` has the published runs. If several stores have a run, the last one counts.
    """
    from harness.records.frame import frame

    return frame(*_folders(store))


@checked
def matrix(suite: Text = "laptop", store: Folders | None = None) -> "pd.DataFrame":
    """Return the matrix of a suite, a row for each variant that was run.

    `suite` is its name or a TOML file; `store` a folder of records, or several, None for the
    published. Columns are those of `reports.matrix.matrix` with the form before each name,
    `causal.recall`, `bidirectional.time.4096`; `outdated` is True where a run of the row is.
    """
    from harness import stores
    from harness.records.store import require_folder
    from harness.records.suites import find
    from harness.report import tables_of

    folders = [*map(require_folder, _folders(store or ()))] or stores.stores_of(None)
    return tables_of(find(suite), stores.results_of(suite, *folders)).joined


@checked
def advise(
    needs: Names, length: Annotated[int, Field(ge=1)], operation: Text = "train", *,
    memory: Natural | None = None, suite: Text = "laptop", store: Text | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return the variants that no other beats in accuracy, time and memory at once.

    Args:
        needs: questions of one form, or what their names begin or else end with: `recall`.
        length: tokens of a sample, at which costs are compared; the nearest measured one counts.
        operation: `train`, `forward`, `prefill` or `decode`.
        memory: the most bytes of a sample; None for any.
        suite: its name, or a TOML file.
        store: records in addition to the published ones.

    Returns:
        See `reports.advice.rules.advise`; and the `query` and the `setting` of its costs.
    """
    names = [needs] if isinstance(needs, str) else needs
    folder = Path(store) if store else None
    table, query, result = ask(names, operation, length, memory, suite=suite, store=folder)
    return {"query": query, "setting": table["setting"], **result}


def ask(
    needs: Sequence[str], operation: str, length: int, memory: float | None = None, *,
    suite: str = "laptop", store: Path | None = None,
) -> "tuple[Values, Values, Values]":  # fmt: skip
    """Return table, query and result of `advise`; costs of `store` replace the published ones."""
    import json
    import shlex

    from harness import stores
    from harness.catalogue import described
    from harness.records.fields import require_known
    from harness.records.suites import FOLDER, find
    from reports import advice
    from reports.suite_results import results

    chosen = find(suite)
    names = [question.name for question in chosen.questions]
    wanted: dict[str, None] = {}
    for need in needs:
        found = [name for name in names if name == need or name.startswith(f"{need}-")]
        found = found or [name for name in names if name.endswith(f"-{need}")]
        if not found:
            raise UserError(unknown(f"question of {chosen.key}", need, names))
        wanted |= dict.fromkeys(found)
    require_known("pass", [operation], advice.PASSES)
    query: Values = {"length": length, "pass": operation, "memory": memory, "needs": [*wanted]}
    # The table of the published records, which `harness.cli.pages` writes.
    path = FOLDER / f"{chosen.name}.json"
    table = {} if store or not path.exists() else json.loads(path.read_text("utf-8"))
    # The file may be older than the questions of the suite.
    if {*table.get("forms", ())} != {*names}:
        content = stores.results_of(chosen.name, *stores.stores_of(store))
        of = results(content.runs, chosen, content.rules)
        table = advice.table(of.answers(), of.seeds, content.costs, chosen, described())
    # A suite of a user is named by its file.
    table["suite"] = shlex.quote(suite if suite.endswith(".toml") else chosen.key)
    key, conflict = advice.rules.setting_of(table, query)
    if conflict:
        raise UserError(conflict)
    if measured := table["lengths"].get(key):
        query |= {"length": min(max(length, measured[0]), measured[-1]), "asked": length}
    return table, query, advice.advise(table, query)


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
        task: its name, `MODULE:CLASS`, or several; by default ListOps, or the task of a question of
            a suite.
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
    from harness.arguments import registered, tasks_in
    from harness.engines import resources
    from harness.records.frame import of_records
    from harness.runs import Comparison, Execution, compare

    names, tasks = registered(_names(attention)), tasks_in(_names(task))
    comparison = Comparison(
        attention=names, task=[*filter(None, tasks)], seeds=seeds, budget=budget, device=device,
        precision=precision, positions=positions, settings=overrides, tune=tune,
    )  # fmt: skip
    how = Execution(
        store=Path(store), cost=cost,
        resources=resources(device=device, workers=workers, threads=threads),
    )  # fmt: skip
    outcomes, costs, _ = compare(comparison, how)
    return of_records([record for record, _ in outcomes], costs)


@checked
def cost(
    attention: str | Sequence[Text], lengths: Lengths = (256, 512, 1024, 2048, 4096), *,
    passes: Names = "train", level: str = "layer", batch: Text = "1", dim: Size = 64,
    heads: Size = 2, causal: bool = False, precision: str = "auto", device: str = "auto",
    store: Text | Path = "runs", rerun: bool = False, keep_outdated: bool = False,
    seconds: Annotated[float, Field(ge=0)] = 3.0, timeout: Annotated[float, Field(gt=0)] = 600.0,
    show: Callable[..., None] = lambda record, new: None,
    settings: Mapping[str, Mapping[str, Value]] | None = None,
    **options: Mapping[str, Value],
) -> "pd.DataFrame":  # fmt: skip
    """Measure time and memory against the number of tokens, beside softmax; a row a measurement.

    The columns are in `docs/records.md`, section Costs; the last rows are of softmax.

    Args:
        attention: `A`, `MODULE:CLASS`, or several; none, with `rerun`, repeats what this machine
            has measured.
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
        timeout: seconds of a measurement, at most.
        rerun: whether to repeat them.
        keep_outdated: whether measurements of earlier code are results.
        show: called with each record as it is made, and whether it is new.
        settings: as `options`, for names that are those of other arguments.
        options: by variant, or by `model` with level `step`.
    """
    from harness.arguments import registered
    from harness.costs.plan import CostRequest
    from harness.runs import Execution, Shown, measured

    return measured(CostRequest(
        attentions=registered(_names(attention)), lengths=lengths, operations=_names(passes),
        level=level, batching=batch, dim=dim, heads=heads, causal=causal, precision=precision,
        device=device,
        settings={**(settings or {}), **options},
    ), Execution(
        store=Path(store), seconds=seconds, timeout=timeout, rerun=rerun,
        keep_outdated=keep_outdated, shown=Shown(cost=show),
    ))  # fmt: skip


@checked
def check(
    name: Text, *, fast: bool = False, only: Sequence[Text] | None = None, **options: Value
) -> "pd.DataFrame":
    """Run every check of a variant that its traits require, or of a task; a row for each.

    `name` may be MODULE:CLASS; `fast` leaves out long inputs, large batches and the compiler;
    `only` names checks, at least one; `options` are of the variant or the task. Columns: `name`
    with its form, `check`, its `group`, `passed`, `seconds`, and `detail`, the number that decided.
    """
    import pandas as pd

    from harness.checks import examine

    settings = {name.rpartition(":")[2]: options} if options else {}
    return pd.DataFrame(examine(name, settings, fast=fast, only=only)[0])


def status(store: Path) -> "list[Entry]":
    """Return the runs of a store that are done, running, interrupted, failed or outdated."""
    from harness.records.overview import overview
    from harness.records.store import Store, require_folder
    from harness.stores import with_warnings

    return with_warnings(overview(Store(require_folder(store))))[0]


def pack(store: Path, out: Path, *, suite: str = "", row: str = "") -> tuple[list[Path], int]:
    """Write the records of a store as lines; return the paths of the files, and the records.

    `out` has published records, which are merged; where it is `store`, its files are deleted.
    `row`, as `primal[rank=8]` or MODULE:CLASS, is of `suite`, and packed with its costs and
    certificates; without both, every record of the store is.
    """
    from harness.records.files import write_pages
    from harness.records.published import every_line, merged
    from harness.records.store import require_folder

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


def _names(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else [*names]


def _folders(stores: Folders | tuple[()]) -> list[Path]:
    from harness.stores import PUBLISHED

    every = [stores] if isinstance(stores, str | Path) else stores
    return [PUBLISHED if store == "published" else Path(store) for store in every]
