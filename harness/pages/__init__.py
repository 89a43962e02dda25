"""Writes every generated file of this repository from its records: `python -m harness.pages`.

With `--check` nothing is written. It names the files that are out of date or cannot be made here,
as without an extra package, and exits 1 if there are any. Measurements are records, and this
program makes none; `--fit` fits missing baselines.
"""

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import typer

from harness import baselines, catalogue, first, recipes, report, runs, stores, studies
from harness.checks import is_certified
from harness.cli.progress import shown
from harness.records.certificate import Certificate
from harness.records.files import within, write_pages
from harness.records.store import BaselineStore, CertificateStore, ShallowStore
from harness.records.suites import find, names, published
from reports import advice, validity
from reports.markdown import insert
from reports.pages import suite as suite_pages
from reports.pages.catalogue import tasks_page, variants_page
from reports.pages.certificates import certificates_page
from reports.pages.findings import findings
from reports.text import frame_csv
from zoo.registry import UserError, first_line
from zoo.variants import variants

Files = Mapping[Path, bytes]

# Files that are made with a table that is compared, and differ by the version of the library that
# wrote them.
NOT_COMPARED = (".parquet", ".png", ".svg")


PAGES = (".md", ".csv", ".png", ".svg")  # Suffixes of files that are made from records


@dataclass(frozen=True, kw_only=True)
class PagesOptions:
    """The options of this program.

    Attributes:
        check: Name what is out of date.
        fit: First fit what findings and published runs lack; this may take hours.
        root: A checkout of the repository.
    """

    check: bool = False
    fit: bool = False
    root: Path = Path()


def main(options: PagesOptions) -> None:
    """Write every generated file, or name those that are out of date; exit 1 if there are any."""
    root = options.root
    if options.fit:
        runs.fit_baselines(stores.content(root / "results").records, root / "results", shown())
        fitted = ShallowStore.within(root / "results")
        for name in baselines.STUDY_SETTINGS:
            if name not in fitted.entries():
                typer.echo(fitted.write(baselines.shallow_study(name)))
    certificates, written = CertificateStore.within(root / "results").by_variant(), set[Path]()
    lines = [*_stale_certificates(certificates), *_missing_baselines(root / "results")]
    complete = True
    for make in GENERATORS:
        try:
            files = make(root)
        except (ImportError, UserError) as error:
            if not options.check:
                raise
            lines.append(f"not checked: {make.__name__.strip('_')}: {first_line(error)}")
            complete = False
            continue
        written |= {*files}
        if options.check:
            old = (file for file, content in files.items() if not is_current(file, content))
            lines += [f"out of date: {file}: python -m harness.pages" for file in old]
        else:
            new = {file: files[file] for file in files if _differs(file, files[file])}
            typer.echo("".join(f"{file}\n" for file in write_pages(new)), nl=False)
    others = [file for file in pages_of(root) if file not in written] if complete else []
    lines += [f"out of date: {file}: {remedy(file)}" for file in others]
    for line in lines:
        typer.echo(line)
    raise typer.Exit(1 if lines else 0)


def pages_of(root: Path) -> list[Path]:
    files = sorted((root / "results").rglob("*"))
    return [file for file in files if file.suffix in PAGES and file.name != "README.md"]


def remedy(file: Path) -> str:
    name = file.stem.removesuffix("-answers")
    commands = dict.fromkeys(names(), "run --suite") | dict.fromkeys(studies.names(), "study")
    if name not in commands:
        return "no record is in it; delete it"
    return f"its records are missing: harness {commands[name]} {name} --store {file.parent}"


def is_current(file: Path, content: bytes) -> bool:
    return file.suffix in NOT_COMPARED or not _differs(file, content)


def _differs(file: Path, content: bytes) -> bool:
    if not file.is_file():
        return True
    found = file.read_bytes()
    return found != content and not (file.suffix == ".csv" and _is_close(found, content))


def _is_close(first: bytes, second: bytes) -> bool:
    # Last digits depend on libraries.
    tables = [[*csv.reader(text.decode().splitlines())] for text in (first, second)]
    if [*map(len, tables[0])] != [*map(len, tables[1])]:
        return False
    rows = zip(*tables, strict=True)
    return all(_same(*values) for pair in rows for values in zip(*pair, strict=True))


def _same(first: str, second: str) -> bool:
    try:
        return first == second or math.isclose(float(first), float(second))
    except ValueError:
        return False


def _stale_certificates(found: Mapping[str, Certificate]) -> Iterator[str]:
    for name, variant in variants.built_in():
        if variant.unchecked:
            continue
        try:
            if not is_certified(name, found.get(name)):
                remedy = f"harness check {name} --store results"
                yield f"out of date: the certificate of {name}: {remedy}"
        except UserError as error:
            yield f"not checked: the certificate of {name}: {error}"


def _missing_baselines(store: Path) -> Iterator[str]:
    fitted = BaselineStore.within(store)
    tasks = (record.spec.task for record in stores.content(store).records if record.final)
    for key in sorted({task.key for task in tasks if fitted.find(task) is None}):
        yield f"not checked: no baselines of {key}: python -m harness.pages --fit"


def _studies(root: Path) -> Files:
    found: dict[Path, bytes] = {}
    for store in (root / "results", root / "results" / "small"):
        for name in studies.names():
            found |= within(store, report.study_pages(studies.find(name), store))
    return found


def _screen(root: Path) -> Files:
    # From: harness run --attention primal --json > results/screens/first.json
    file = root / "results" / "screens" / "first.json"
    screen = json.loads(file.read_text("utf-8"))
    row = screen["rows"][0]
    suite = find(row["suite"])
    questions, answers = [*map(suite.question, suite.first)], published(suite)
    settings = recipes.declared(suite)
    expected = [(of.title, settings[of.name]) for of in questions]
    if [(found["title"], found.get("declared")) for found in row["questions"]] != expected:
        raise UserError(f"{file} has other questions than {suite.key}; make it again")
    places = [first.placed(found, row["row"], question.name, answers)
              for found, question in zip(row["questions"], questions, strict=True)]  # fmt: skip
    lines = first.text(row | {"questions": places}, screen["machine"]).splitlines()
    readme = root / "README.md"
    block = "\n".join(f"    {line}".rstrip() for line in lines)
    return {readme: insert(readme.read_text("utf-8"), "screen", block).encode()}


def _documents(root: Path) -> Files:
    store, small = root / "results", root / "results" / "small"
    registered = catalogue.registered(plug_ins=False)
    certificates = CertificateStore.within(store).read_whole()
    fitted = ShallowStore.within(store).read_whole()
    return {
        root / "harness" / "list.json": catalogue.content(),
        root / "docs" / "certificates.md": certificates_page(certificates).encode(),
        root / "docs" / "tasks.md": tasks_page(registered).encode(),
        root / "docs" / "variants.md": variants_page(registered).encode(),
        root / "docs" / "findings.md": findings(fitted).encode(),
        # Of features that no other record shows.
        **within(small, report.files_of(report.results_in(stores.content(small)))),
    }


def _reports(root: Path) -> Files:
    store, readme, tables = root / "results", root / "README.md", dict[str, bytes]()
    content, text = stores.content(store), readme.read_text("utf-8")
    found = report.results_in(content)
    compact = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
    for of in found.suites:
        # The README and the package have the answers of suites that no paper published.
        if (name := of.suite.name) not in names() or not of.suite.has_costs:
            continue
        values = advice.table(of.answers, of.seeds, content.costs, of.suite, catalogue.described())
        tables[f"{name}.json"] = f"{compact.encode(values)}\n".encode()
        tables[f"{name}.csv"] = frame_csv(suite_pages.published(of))
        text = insert(text, name, suite_pages.readme_table(of))
    (tested,) = [of for of in found.suites if of.suite.key == validity.suite()] or (
        report.results_in(content, report.Selection(suites=(find(validity.suite()),))).suites
    )
    return {
        **within(store, report.files_of(found)),
        root / "docs" / "validity.md": validity.page(tested, found.leaderboard).encode(),
        **within(root / "harness" / "recipes" / "suites", tables),
        readme: text.encode(),
    }


GENERATORS: tuple[Callable[[Path], Files], ...] = (
    _documents, _reports, _studies, _screen,
)  # fmt: skip
