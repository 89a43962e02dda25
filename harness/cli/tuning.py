"""`harness run --tune`: the trials of every row, then its runs at the chosen point."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

from harness.cli.arguments import seeds_in, values_in

if TYPE_CHECKING:
    from harness.plan import Plan, Request
    from harness.records.record import Record
    from harness.tuning import Row

    Outcomes = list[tuple[Record, bool]]

SEEDS = "1-5"
"""The seeds of the runs at the chosen point."""


def run(
    requests: "Sequence[Request]",
    grid: Sequence[str] | None,
    seeds: str | None,
    execute: "Callable[[Sequence[Plan]], Outcomes]",
    needs_seeds: "Callable[[Record], bool]" = lambda chosen: True,
) -> "tuple[Outcomes, int]":
    """Tune a row for each request.

    Args:
        requests: a run of each row.
        grid: texts of `--grid`.
        seeds: of the runs at the chosen point; `SEEDS` if None.
        execute: runs plans; returns a record of each plan that can run, and whether it is new.
        needs_seeds: whether a row has further seeds, by its chosen trial; called after all trials.

    Returns:
        The records of the runs at the chosen points, and of the trials of rows without them: the
        chosen one, or all where none finished; and their number if none is skipped or fails.

    Raises:
        UserError: bad input.
    """
    from harness.tuning import require_other_seeds, row

    numbers = seeds_in(SEEDS if seeds is None else seeds)
    require_other_seeds(numbers)
    texts = values_in("--grid", grid)
    rows = [row(request, texts, announce=typer.echo) for request in requests]
    trials = {r.spec.id: r for r, _ in execute([p for one in rows for p in one.trials])}
    finals, ended, expected = [], [], 0
    for tuned in rows:
        chosen = tuned.best(trials)
        more = chosen is None or needs_seeds(chosen)
        expected += len(numbers) if more else 1
        if chosen is None:
            ended += [trials[p.spec.id] for p in tuned.trials if p.spec.id in trials]
        elif more:
            finals += tuned.finals(chosen.spec, numbers)
        else:
            ended.append(chosen)
        _show(tuned, trials)
    outcomes = execute(finals) if finals else []
    return [*outcomes, *((trial, False) for trial in ended)], expected


def _show(row: "Row", trials: "dict[str, Record]") -> None:
    """Print the score on dev at each point, and the point that is chosen."""
    from harness.records import frame
    from reports.questions import failure, lines

    records = [trials[plan.spec.id] for plan in row.trials if plan.spec.id in trials]
    if not records:
        return
    chosen, texts = row.best(trials), []
    for record, line in zip(records, lines(frame.of_records(records)), strict=True):
        grid_point = ", ".join(f"{path}={value}" for path, value in record.spec.point.items())
        result = record.selection.sentence(record.final.dev) if record.final else failure(line)
        texts.append(f"{grid_point}: {result}{' (chosen)' if record is chosen else ''}")
    typer.echo(f"{row.request.attention} on {row.trials[0].spec.task.key}, on dev:")
    typer.echo("".join(f"  {text}\n" for text in texts), nl=False)
