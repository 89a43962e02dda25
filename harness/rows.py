"""A row of a suite as one file: packed from a store, verified, and trained again."""

import shlex
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harness import recipes
from harness.arguments import rows_in
from harness.checks import is_certified
from harness.data import data_of
from harness.environment import is_foreign, is_outdated
from harness.questions import RATE
from harness.records.cost import CostRecord
from harness.records.files import file_lines
from harness.records.frame import of_records
from harness.records.record import Record
from harness.records.results import Certificate
from harness.records.spec import flags_of, unmatched
from harness.records.store import Broken, CertificateStore, CostStore, Line, Store, file_of, line
from harness.records.suites import Suite, SuiteRow, find
from harness.runner import run
from harness.runs import at_rate, best, differ, due
from harness.suite import has_form, layer_costs, recipe_and_task
from zoo.contract import CAUSAL_SUFFIX
from zoo.registry import UserError
from zoo.variants import variants


@dataclass(frozen=True)
class Row:
    store: Path
    suite: Suite
    label: str
    runs: Sequence[Record]
    costs: Sequence[CostRecord]
    certificates: Sequence[Certificate]

    @property
    def file(self) -> str:
        return file_of(self.suite.key, self.label)

    @property
    def lines(self) -> list[Line]:
        of = {Store: self.runs, CostStore: self.costs, CertificateStore: self.certificates}
        return [line(kind.within(self.store), record, self.file) for kind, records in of.items()
                for record in records]  # fmt: skip


class Finding(NamedTuple):
    check: str
    passed: bool
    detail: str


def to_pack(name: str, text: str, store: Path) -> Row:
    suite, (label,) = find(name), rows_in([text])
    named = flags_of(label, text.partition("[")[0])
    if label in (of.label for of in suite.rows):
        named = f"--attention {shlex.quote(text)}"
    suite_and_store = f"--suite {shlex.quote(name)} --store {shlex.quote(str(store))}"
    run = f"harness run {suite_and_store} {named}"
    row = of_store(suite, label, store, run)
    if missing := [*missing_runs(row)]:
        more = f" and {len(missing) - 1} more" * (len(missing) > 1)
        raise UserError(
            f"row {row.label!r} of {suite.key} is not complete, it lacks {missing[0]}{more}; "
            f"make them with: {run}"
        )
    return row


def of_store(suite: Suite, label: str, store: Path, run: str) -> Row:
    runs = [run for run in Store(store).read_whole()
            if (run.spec.question.suite, run.spec.row) == (suite.key, label)]  # fmt: skip
    if not runs:
        raise UserError(
            f"store {str(store)!r} has no run of row {label!r} of {suite.key}; make them with: "
            f"{run}"
        )
    costs = CostStore.within(store).read_whole()
    costs = [cost for cost in costs if cost.spec.row == unmatched(label)]
    certificates = CertificateStore.within(store).by_variant()
    found = [certificates[n] for n in runs[0].spec.variants if n in certificates]
    return Row(store, suite, label, runs, costs, found)


def check_row(
    path: Path, count: int = 0, show: Callable[[Finding], None] = lambda finding: None
) -> tuple[Row, list[Finding]]:
    row, found = of_file(path), list[Finding]()
    for finding in chain(verify(row), repeat(row, count)):
        show(finding)
        found.append(finding)
    return row, found


def of_file(path: Path) -> Row:
    stores = {of.tag: of for of in (Store, CostStore, CertificateStore)}
    found: dict[str, list[Any]] = {tag: [] for tag in stores}
    for text in file_lines(path):
        if text.kind not in found:
            kinds = ", ".join(found)
            raise UserError(f"line {text.line} of {path} is a {text.kind}; a row has {kinds}")
        record = stores[text.kind](path.parent).parse(text)
        if isinstance(record, Broken):
            reason = record.reason.removesuffix("; move it away")
            raise UserError(f"{path} is not the file of a row ({reason}); pack it again")
        found[text.kind].append(record)
    rows = {(run.spec.question.suite, run.spec.row) for run in found["run"]}
    if len(rows) != 1:
        raise UserError(f"{path} has the runs of {len(rows)} rows; pack one row with: harness pack")
    ((suite, label),) = rows
    row = Row(path.parent, find(suite), label, found["run"], found["cost"], found["certificate"])
    if path.resolve().parts[-2:] != (*row.file.split("/"),):
        raise UserError(f"{path} has the runs of row {label!r} of {suite}; name it {row.file}")
    return row


def verify(row: Row) -> Iterator[Finding]:
    declared = recipes.declared(row.suite)
    others = {run.spec.question.name for run in row.runs
              if run.spec.question.declared != declared.get(run.spec.question.name)}  # fmt: skip
    yield _finding("questions", others, "of other settings than the suite has now")
    data = {(run.spec.question.name, *sorted(run.spec.data.items())) for run in row.runs}
    names = [name for name, *_ in data]
    yield _finding("data", {n for n in names if names.count(n) > 1}, "of several data")
    strangers = {cost.spec.row for cost in row.costs} - {unmatched(row.label)}
    strangers |= {found.variant for found in row.certificates} - {*row.runs[0].spec.variants}
    yield _finding("row", strangers, "of another row")
    missing = [*missing_runs(row)]
    yield _finding("complete", missing, "missing")
    absent = [name for name in row.runs[0].spec.variants if name not in variants.names()]
    if absent:
        yield Finding("code", True, f"not checked: {', '.join(absent)} is not installed here")
        return
    old = {f"{record.spec.file_name}" for record in (*row.runs, *row.costs) if is_outdated(record)}
    yield _finding("code", old, "of another version than is installed")
    yield _finding("costs", [*_missing_costs(row)], "missing")
    found = {certificate.variant: certificate for certificate in row.certificates}
    wrong = []
    for name in row.runs[0].spec.variants:
        one, is_needed = found.get(name), name in found or is_foreign([name])
        if is_needed and not (one and one.passed and is_certified(name, one)):
            wrong.append(name)
    yield _finding("certificate", wrong, "missing, outdated, or with failures")


def missing_runs(row: Row) -> Iterator[str]:
    for question in row.suite.questions:
        runs = [run for run in row.runs if run.spec.question.name == question.name]
        if not runs and not _has_form(row, causal=recipe_and_task(row.suite, question)[1].causal):
            continue
        runs = [run for run in runs if run.is_final]
        if not question.rates:
            seeds = {run.spec.seed for run in runs}
            yield from (f"{question.name} seed {s}" for s in question.seeds if s not in seeds)
            continue
        made = [run for run in runs if run.spec.role == "trial"]
        if not made:
            yield f"{question.name} trials"
            continue
        trials = [at_rate(made[0].spec, rate) for rate in question.rates]
        missing = due(trials, made)
        yield from (f"{question.name} trial {RATE}={trial.train.lr}" for trial in missing)
        if chosen := best(made):
            rate = chosen.spec.values[RATE]
            finals = {run.spec.seed: run for run in runs
                      if run.spec.role == "final" and run.spec.values[RATE] == rate}  # fmt: skip
            seeds = [*question.seeds, *(question.more_seeds if differ([*finals.values()]) else ())]
            of_rate = f"{question.name} {RATE}={rate}"
            yield from (f"{of_rate} seed {seed}" for seed in seeds if seed not in finals)


def _has_form(row: Row, *, causal: bool) -> bool:
    # The forms of a variant that is not installed are in its certificate.
    forms = {
        found.variant: {result.form for result in found.results}
        for found in row.certificates
        if found.variant not in variants.names()
    }
    is_listed = all(f"{name}{CAUSAL_SUFFIX * causal}" in of for name, of in forms.items())
    return is_listed and has_form(row.runs[0].spec.attention, causal=causal)


def repeat(row: Row, count: int) -> Iterator[Finding]:
    # Equal bit for bit with the same machine, commit and PyTorch, else in the recorded interval.
    runs = sorted((run for run in row.runs if run.final and run.spec.role != "trial"),
                  key=lambda run: run.final.train_seconds if run.final else 0)  # fmt: skip
    first = {run.spec.question.name: run for run in reversed(runs)}
    for recorded in sorted(first.values(), key=runs.index):
        if not count:
            return
        with suppress(UserError):  # data that are not here
            data_of(recorded.spec.question.task)
            count -= 1
            yield _repeated(recorded)
    if count:
        yield Finding("repeat", True, f"{count} runs not repeated: their data are not here")


def _repeated(recorded: Record) -> Finding:
    name, before = f"repeat {recorded.spec.file_name}", torch.get_num_threads()
    torch.set_num_threads(recorded.environment.threads)
    try:
        with tempfile.TemporaryDirectory() as folder:
            again = run(recorded.spec, Store(Path(folder)))
    finally:
        torch.set_num_threads(before)
    if not (again.final and recorded.final):
        return Finding(name, False, f"{again.status}: {again.reason}")
    score, expected = again.final.score, recorded.final.score
    here, there = ((of.device, of.commit, of.versions["torch"])
                   for of in (again.environment, recorded.environment))  # fmt: skip
    if here == there:
        same = score == expected and again.final.sample == recorded.final.sample
        return Finding(name, same, f"{score} is {'' if same else 'not '}bit for bit {expected}")
    low, high = of_records([recorded])[["low", "high"]].iloc[0]
    detail = f"{score}, recorded {expected} [{low}, {high}]"
    return Finding(name, bool(low <= score <= high), detail)


def _finding(check: str, wrong: Any, what: str) -> Finding:
    texts = sorted(wrong)
    more = f" and {len(texts) - 3} more" * (len(texts) > 3)
    return Finding(check, not texts, f"{', '.join(texts[:3])}{more}: {what}" if texts else "")


def _missing_costs(row: Row) -> Iterator[str]:
    spec, options = row.runs[0].spec, dict[str, dict[str, Any]]()
    for path, value in spec.overrides.items():
        owner, _, name = path.partition(".")
        options.setdefault(owner, {})[name] = value
    present = {cost.spec.shape for cost in row.costs if not cost.spec.superseded}
    due = layer_costs(row.suite, SuiteRow(attention=spec.attention, options=options), "cpu")
    for cost in due if row.suite.has_costs else ():
        if cost.shape not in present:
            yield f"{cost.operation}{', causal' * cost.causal} at {cost.length}"
