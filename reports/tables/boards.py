"""Groups records into boards and rows: a board is one table, a row is one line of it."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from harness.records.cost import CostRecord
from harness.records.record import Metric, Record
from harness.records.spec import RunSpec
from harness.records.tuning import is_trial
from reports.tables.rows import Row, group_by, in_order
from reports.tables.scores import Baselines, best_first
from reports.tables.settings import (
    Setting,
    chosen_text,
    precision_text,
    setting,
    sort_key,
    titles,
    with_precision,
)
from reports.tables.standings import verdict, with_standings
from reports.tables.trials import without_trials
from reports.tables.versions import of_newest_versions

Options = Mapping[str, Mapping[str, object]]
"""Options of the variants of a run, by variant."""


@dataclass(frozen=True)
class Board:
    """Rows whose numbers may be compared: same task, data, recipe and machine.

    Attributes:
        title: of the board, as plain text; no other board has the same.
        machine: where its runs were measured.
        setting: every field of the specification that all runs share, by its path.
        rows: the best first, those without a score last.
        baselines: scores of the task without attention, the best first.
    """

    title: str
    machine: str
    setting: Setting
    rows: tuple[Row, ...]
    baselines: Baselines

    @property
    def metric(self) -> Metric:
        """What its scores are."""
        return self.rows[0].metric

    @property
    def spec(self) -> RunSpec:
        """Of any run: all agree on everything but variant, options and seed."""
        return self.rows[0].spec

    @property
    def test_examples(self) -> int | None:
        """Size of the test split; None where no run finished."""
        return next((final.test_examples for row in self.rows for final in row.finals), None)

    @property
    def verdict(self) -> str:
        """What the board settles, in one to four sentences of plain text."""
        return verdict(self.rows, self.baselines)


def boards(records: Iterable[Record]) -> list[Board]:
    """Every board that the records make, in order of task, budget and machine.

    Two records share a board if their specifications differ in nothing but variant, options, seed,
    precision and the fields that were tuned over one grid, and if they ran on one kind of
    processor. A trial that chooses from a grid is in no row; of a row of which no trial finished,
    all are.
    """
    return [
        _board(title, shared, runs)
        for title, shared, runs in grouped(without_trials(records), lambda run: setting(run.spec))
    ]


def grouped(
    records: Iterable[Record], shared: Callable[[Record], Setting]
) -> list[tuple[str, Setting, list[Record]]]:
    """Groups of runs of one setting and kind of processor in order, with its title and setting.

    Runs of older versions of a task are left out. Threads belong to the cost of a run, and not to
    its accuracy: they are in the title alone. Of two records of the same run on one kind of
    processor, the later one is used.
    """
    used = of_newest_versions(records)
    ordered = sorted(used, key=lambda record: (record.spec.id, record.started))
    latest = {(record.spec.id, record.environment.device): record for record in ordered}
    groups = group_by(latest.values(), lambda run: sort_key(shared(run), run.environment.device))
    runs = [groups[key] for key in sorted(groups)]
    settings = [with_precision(shared(group[0]), [run.spec for run in group]) for group in runs]
    names = titles(settings, [machines(group) for group in runs])
    return list(zip(names, settings, runs, strict=True))


def machine(record: Record | CostRecord) -> str:
    """The machine of a cost: the device, for a CPU with the number of threads."""
    return machines([record])


def machines(records: Sequence[Record | CostRecord]) -> str:
    """The device of runs, for a CPU with each number of threads."""
    name = records[0].environment.device
    counts = sorted({record.environment.threads for record in records})
    threads = "1 thread" if counts == [1] else f"{' or '.join(map(str, counts))} threads"
    return f"{name}, {threads}" if records[0].spec.device == "cpu" else name


def by_options(runs: Iterable[Record], varied: str = "") -> list[tuple[str, list[Record]]]:
    """Groups of runs whose options agree, in order of seed, each with its text of `differences`.

    `varied` is the path of an option in which the runs of a group differ, as `primal.rank`.
    """
    ordered = sorted(runs, key=lambda run: run.spec.seed)
    groups = group_by(ordered, lambda run: json.dumps(_options(run.spec, varied), sort_keys=True))
    sets = [groups[key] for key in sorted(groups)]
    specs = [own[0].spec for own in sets]
    texts = differences(
        [_options(spec, varied) for spec in specs],
        [{path: v for path, v in spec.overrides.items() if path != varied} for spec in specs],
    )
    return list(zip(texts, sets, strict=True))


def differences(sets: Sequence[Options], overrides: Sequence[Mapping[str, object]]) -> list[str]:
    """The options of each set that others have otherwise, or that were set: ` (eta=0.1, rank=20)`.

    Args:
        sets: options by variant.
        overrides: of each set, the options that differ from the recipe, by `VARIANT.OPTION`; other
            paths are ignored.
    """
    flat = [_flat(options) for options in sets]
    names = {name for own in flat for name in own}
    differing = {name for name in names if len({own.get(name) for own in flat}) > 1}
    texts = []
    for options, own, changed in zip(sets, flat, overrides, strict=True):
        of_variants = {path: v for path, v in changed.items() if path.partition(".")[0] in options}
        shown = {path: v for path, v in own.items() if path in differing} | of_variants
        names = {path: path if len(options) > 1 else path.partition(".")[2] for path in shown}
        texts.append(", ".join(f"{names[path]}={shown[path]}" for path in sorted(shown)))
    return [f" ({text})" if text else "" for text in texts]


def _options(spec: RunSpec, varied: str) -> Options:
    """The options of a run without the one that varies."""
    return {
        variant: {name: v for name, v in own.items() if f"{variant}.{name}" != varied}
        for variant, own in spec.options.items()
    }


def baselines(records: Iterable[Record]) -> Baselines:
    """The baselines of runs of one task; where records disagree, the latest is used."""
    scores: dict[str, float] = {}
    runs = sorted(records, key=lambda record: record.started)
    for record in runs:
        scores |= record.baselines
    return best_first(scores, runs[0].metric) if runs else ()


def _board(title: str, shared: Setting, runs: Sequence[Record]) -> Board:
    plain = Board(title, machines(runs), shared, _rows(runs, shared), baselines(runs))
    return replace(plain, rows=with_standings(plain.rows, plain.baselines))


def _rows(records: Sequence[Record], shared: Setting) -> tuple[Row, ...]:
    def choice(run: Record) -> str:
        return f"{_chosen(run)}{precision_text(run.spec, shared)}"

    rows = [
        Row(f"{name}{options}{chosen}", tuple(runs))
        for name, all_runs in group_by(records, lambda run: run.spec.attention).items()
        for options, same in by_options(all_runs)
        for chosen, runs in group_by(same, choice).items()
    ]
    return tuple(in_order(rows))


def _chosen(run: Record) -> str:
    """The point of the grid that a row was chosen at; trials of a failed row are at several."""
    return "" if is_trial(run) else chosen_text(run.spec)


def _flat(options: Options) -> dict[str, str]:
    """Options by `VARIANT.OPTION`."""
    return {
        f"{variant}.{name}": str(value)
        for variant, own in options.items()
        for name, value in own.items()
    }
