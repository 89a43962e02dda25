"""The pages of a store: what is shown of it, the results, the files, and comparisons of rows."""

import warnings
from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from harness import stores
from harness.arguments import rows_in, split
from harness.catalogue import described
from harness.events import write_events
from harness.records import frame
from harness.records.cost import REFERENCE
from harness.records.fields import now, require_known
from harness.records.files import require_writable, within, write_pages
from harness.records.results import StudyRecord, StudySpec, frame_of, table_of
from harness.records.store import CostStore, ShallowStore, Store, StudyStore, require_folder
from harness.records.suites import Suite, find, names
from reports import cost, papers, unnamed
from reports.incomplete import marked
from reports.pages import suite as suite_pages
from reports.pages.suite import Tables, tables
from reports.statistics import COLUMNS, between, joined
from reports.studies import study_files
from reports.suite_results import is_of_suite
from reports.text import WIDE, frame_csv, text_table, whole_text
from zoo.registry import UserError, entry_points, layers_in

if TYPE_CHECKING:
    from harness.runs import Outcomes
    from harness.studies import Study


# Of both rows of a comparison
SIZES = {"seeds": "seeds", "parameters": "parameters", "state_bytes": "state, bytes"}
PLANNED = "Intervals and p are of each comparison alone; for claims together, use p (Holm, {})."


class Results(NamedTuple):
    content: stores.Content
    suites: list[Tables]  # The last one may be of the runs of no suite, see `reports.unnamed`
    steps: list[tuple[Suite, pd.DataFrame]]

    @property
    def differences(self) -> pd.DataFrame:
        return joined(of.pairs for of in self.suites)


def results_in(
    content: stores.Content, suites: Sequence[str] = (), *, published: bool | None = None,
    attentions: Sequence[str] = (), questions: Sequence[str] = (),
) -> Results:  # fmt: skip
    # Without `suites`, those of the runs. `published` adds the published runs to each suite, by
    # default if one is of this package. `attentions` and `questions` filter after the comparison.
    named, runs = _named(suites, questions), content.runs
    texts = dict(zip(named, suites, strict=True))
    if published is None:
        published = stores.PUBLISHED.is_dir() and any(of.name in names() for of in named.values())
    joint = _with_published(content) if published else content
    shown = {
        "attentions": rows_in([name for text in attentions for name in split(text)]),
        "questions": questions,
    }
    # Beside a variant with runs of a suite, one without is shown by the command that makes some.
    known = {*joint.runs.get("row", ()), *joint.runs.get("attention", ())}
    listed = {variant["name"] for variant in described()["variants"]}
    for name in shown["attentions"]:
        is_variant = {*layers_in(name.partition("[")[0])} <= listed
        if not (named and is_variant and known & {*shown["attentions"]}):
            require_known("variant of these runs", [name], known)
    of_suite, found = np.array(runs.get("suite", ()), dtype=object), list[Tables]()
    is_other = of_suite == ""
    for key in named or sorted({*of_suite} - {""}):
        try:
            suite = named.get(key) or find(key)
        except UserError as error:
            warnings.warn(f"{error}; or give its file: --suite FILE.toml", stacklevel=2)
            continue
        if suite.level == "run":
            is_row = is_of_suite(runs, suite).to_numpy()
            is_other |= (of_suite == key) & ~is_row
            every, added = joint.runs, {*runs["row"][is_row]} if len(runs) else set()
            rows = {*every.loc[every["suite"] == suite.key, "row"]} if len(every) else set()
            more = added if rows > added else ()
            of = tables_of(suite, joint, added=more, **shown)
            own = () if content.is_published else added
            text = texts.get(key, suite.name)
            found.append(_marked(of, joint, own, shown["attentions"], text, questions))
    if not named and is_other.any():
        found.append(unnamed.tables_of(
            runs[is_other], content.rules, content.costs, described(), shown["attentions"]
        ))  # fmt: skip
    return Results(content, found, _step_tables(content.costs, named))


def _named(suites: Sequence[str], questions: Sequence[str]) -> dict[str, Suite]:
    found = [*map(find, suites)]
    keys = [suite.key for suite in found]
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UserError(f"--suite names {min(twice)} twice; rename a file, or leave one out")
    if found:
        every = {question.name for suite in found for question in suite.questions}
        require_known("question", questions, every)
    return dict(zip(keys, found, strict=True))


def _with_published(content: stores.Content) -> stores.Content:
    if not stores.PUBLISHED.is_dir():
        problem = f"{stores.PUBLISHED} is not a folder; use a clone of the repository"
        raise UserError(f"--with-published is not possible: {problem}")
    if content.is_published:
        return content
    return stores.content(stores.PUBLISHED, *content.stores)


def tables_of(suite: Suite, content: stores.Content, **shown: Collection[str]) -> Tables:
    return tables(suite, content.runs, content.rules, content.costs, described(), **shown)


def _marked(of: Tables, content: stores.Content, *names: Any) -> Tables:
    # A class is typed as its place, a plug-in of a package as its name.
    points = entry_points("zoo.variants")
    typed = {point.name: point.name if point.dist else point.value for point in points}
    return marked(of, content.runs, content.stores, typed, described(), *names)


def _step_tables(costs: pd.DataFrame, more: dict[str, Suite]) -> list[tuple[Suite, pd.DataFrame]]:
    if costs.empty or not costs["level"].eq("step").any():
        return []
    from harness.suite import frame_of, steps

    every, found = {of.key: of for of in (*map(find, names()), *more.values())}, []
    for suite in (of for of in every.values() if of.level == "step"):
        wanted = frame_of(steps(suite, suite.questions, suite.rows, "cpu"))
        found.append((suite, papers.step_costs(wanted, costs)))
    return [(suite, measured) for suite, measured in found if len(measured)]


def files_of(found: Results, *, latex: Collection[str] = ()) -> dict[str, bytes]:
    pairs = [part for of in found.suites for part in (of.pairs.assign(probe=""), of.longest_pairs)]
    files = {"pairs.csv": frame_csv(joined(pairs, [*COLUMNS, "probe"]))}
    files |= cost.files(found.content.costs)
    for of in found.suites:
        files |= suite_pages.files(of, latex=of.suite.name in latex)
    for suite, steps in found.steps:
        files |= papers.step_files(steps, suite)
    return files


def write_report(
    found: Results, folder: Path, *, latex: bool = False, curves: bool = False,
    tensorboard: Path | None = None, tasks: Sequence[str] = (), attentions: Sequence[str] = (),
) -> list[Path]:  # fmt: skip
    # Curves and events are of the runs of `tasks` and `attentions`, empty for all.
    names = {of.suite.name for of in found.suites}
    # A file that is there already would be of older records.
    files = files_of(found, latex={n for n in names if latex or (folder / f"{n}.tex").is_file()})
    events: list[Path] = []
    if curves or tensorboard:
        from reports.curves import files as files_of_curves

        runs = [run for run in found.content.records
                if (not tasks or run.spec.task.name in tasks)
                and (not attentions or run.spec.attention in attentions)]  # fmt: skip
        if not any(run.curve for run in runs):
            store = f"store {str(found.content.stores[-1])!r}"
            raise UserError(f"{store} has no such run with a curve; make one with: harness run")
        events = write_events(runs, tensorboard) if tensorboard else []
        files |= files_of_curves(frame.of_records(runs), frame.of_curves(runs))
    require_writable(folder, str(folder), "give another --out")
    return [*events, *write_pages(within(folder, files))]


ARENA = "lra"  # The suite that the site shows beside another


def write_site(suite: str, store: Path | None, out: Path) -> list[Path]:
    from reports.site import NAME, site

    chosen, folder = find(suite), require_folder(store or stores.stores_of(None)[0])
    require_writable(out, str(out), "give another --out")
    found = stores.results_of(chosen.name, folder, curves=True)
    of, studies = tables_of(chosen, found), ShallowStore.within(folder).read_whole()
    arena = None
    if chosen.name != ARENA and len((beside := stores.results_of(ARENA, folder)).runs):
        arena = tables_of(find(ARENA), beside)
    html = site(of, found.costs, described(), records=found.records, studies=studies, arena=arena)
    return write_pages({out / NAME: html})


def write_costs(store: Path) -> list[Path]:
    every = stores.with_warnings(CostStore.within(store).read())[0]
    return write_pages(within(store, cost.files(frame.of_costs(every))))


def summary(outcomes: "Outcomes", store: Path) -> tuple[Tables, list[dict[Hashable, Any]]]:
    paths, measured = Store(store), CostStore.within(store).read()[0]
    runs = frame.of_records((record for record, _ in outcomes), measured)
    of = unnamed.tables_of(runs, stores.rules_of(store), frame.of_costs(measured), described())
    ends = runs[["attention", "task", "seed", "status", "reason", "outdated"]].to_dict("records")
    for end, (record, new) in zip(ends, outcomes, strict=True):
        end |= {"path": paths.path(record.spec), "new": new}
    return of, ends


def matrix_of(suite: Suite, store: Path, name: str) -> Tables | None:
    # The rows of a store, compared with the published ones where there are any.
    own = stores.content(store)
    if suite.key not in {*own.runs.get("suite", ())}:
        return None
    rows = {*own.runs.loc[own.runs["suite"] == suite.key, "row"]}
    found = _with_published(own) if stores.PUBLISHED.is_dir() and suite.name in names() else own
    more = {} if found is own else {"added": rows}
    of = tables_of(suite, found, attentions={*rows, REFERENCE}, **more)
    return _marked(of, found, rows, (), name, ())


def comparison(pairs: Iterable[Sequence[str]], found: Results) -> tuple[pd.DataFrame, str]:
    # Holm's correction counts the named comparisons of a question.
    answers = [of.answers for of in found.suites]
    rows = {row for table in answers for row in table["row"]}
    named: list[tuple[str, str]] = []
    for pair in pairs:
        if len(pair) != 2 or pair[0] == pair[1]:
            raise UserError(f"--compare {','.join(pair)!r} names no two variants; give A,B")
        require_known("variant of the tables", pair, rows)
        named.append((pair[0], pair[1]))
    compared = between(found.differences, named)
    sizes = pd.concat([of.answers.assign(table=of.suite.key) for of in found.suites] or [compared])
    for side in ("first", "second") if len(compared) else ():
        of_side = sizes.set_index(["table", "question", "row"])[[*SIZES]].add_suffix(f".{side}")
        compared = compared.join(of_side, on=["table", "question", side])
    both = [compared.filter(regex=rf"^{name}\.").itertuples(index=False) for name in SIZES]
    head = ["comparison", "question", "difference", "95 % interval", "p", f"p (Holm, {len(named)})",
            *SIZES.values()]  # fmt: skip
    lines = [
        [
            f"{pair.first} minus {pair.second}",
            f"{pair.table}, " * (compared["table"].nunique() > 1) + f"{pair.question}"
            + " (outdated)" * bool(pair.outdated),
            f"{pair.difference:+.3g}", f"[{pair.low:+.3g}, {pair.high:+.3g}]", f"{pair.p:.2g}",
            f"{pair.p_holm:.2g}",
            *(f"{whole_text(first)} / {whole_text(second)}" for first, second in of_both),
        ]
        for pair, *of_both in zip(compared.itertuples(), *both, strict=True)
    ]  # fmt: skip
    lines = [line if len(named) > 1 else line[1:] for line in lines]
    head = head if len(named) > 1 else [f"{' minus '.join(named[0])}", *head[2:]]
    found_texts = [text_table(head, lines, WIDE)] if lines else []
    found_texts += [PLANNED.format(len(named))] * (len(named) > 1 and bool(lines))
    for of in found.suites:
        table, marks = of.answers, of.answers["row"].isin(of.marks)
        of_rows = table["row"].isin({name for pair in named for name in pair})
        part, obstacle = table["part"].mask(marks, ""), table["not_compared"]
        lacks = obstacle.where(obstacle != "", part)
        lacking = table[of_rows & (lacks != "")].groupby(["row", lacks], sort=False)["question"]
        found_texts += [f"{row}: {text} ({', '.join(names)})" for (row, text), names in lacking]
    found_texts += dict.fromkeys(of.marks[row] for of in found.suites for pair in named
                                 for row in pair if row in of.marks)  # fmt: skip
    none = "; ".join(f"no table compares {first} with {second}" for first, second in named)
    return compared, "\n".join(found_texts) or none


def write_study(study: "Study") -> tuple[list[dict[Hashable, Any]], list[Path]]:
    from harness.environment import describe

    store = StudyStore.within(study.store)
    made = [*study.tables(Store(study.store))]
    store.require_writable()
    store.remove_partial_files()
    records: list[StudyRecord] = []
    for subject, options, rows, since in made:
        spec = StudySpec(study=study.name, subject=subject, options=dict(options))
        record = store.find(spec)
        # Texts of times in UTC have the order of the times.
        if not record or study.rerun or record.spec != spec or record.started < since:
            started, table, here = now(), table_of([*rows()]), describe("cpu")
            record = StudyRecord(spec=spec, started=started, environment=here, table=table)
            store.write(record)
        records.append(record)
    files = write_pages(within(study.store, study_pages(type(study), study.store)))
    return [row for record in records for row in frame_of([record]).to_dict("records")], files


def study_pages(kind: "type[Study]", folder: Path) -> dict[str, bytes]:
    found = kind.frame(folder)
    if found.empty:
        return {}
    return study_files(kind.name, kind.head, kind.sections(found), [*kind.panels(found)], found)
