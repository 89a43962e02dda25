"""The content of every generated file of this repository, made from its records."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import catalogue, first, recipes, stores, studies
from harness.records.files import within
from harness.records.store import CertificateStore, ShallowStore
from harness.records.suites import find, names, published
from reports import advice, store, unnamed, validity
from reports.first import text as first_text
from reports.markdown import insert, rendered
from reports.pages import suite as suite_pages
from reports.pages.catalogue import certificates_page, tasks_page, variants_page
from reports.pages.findings import findings
from reports.text import frame_csv
from zoo.registry import UserError

Files = Mapping[Path, bytes]
FIRST_SUITE = "laptop"  # The suite of `harness advise` without `--suite`


def _studies(root: Path) -> Files:
    found: dict[Path, bytes] = {}
    for name in studies.names():
        found |= within(root / "results", store.study_pages(studies.find(name), root / "results"))
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
    lines = first_text(row | {"questions": places}, screen["machine"]).splitlines()
    readme = root / "README.md"
    block = "\n".join(f"    {line}".rstrip() for line in lines)
    return {readme: insert(readme.read_text("utf-8"), "screen", block).encode()}


def _documents(root: Path) -> Files:
    registered = catalogue.registered(plug_ins=False)
    certificates = CertificateStore.within(root / "results").read_whole()
    fitted = ShallowStore.within(root / "results").read_whole()
    pages = {
        "certificates.md": certificates_page(certificates), "tasks.md": tasks_page(registered),
        "variants.md": variants_page(registered), "findings.md": findings(fitted),
    }  # fmt: skip
    documents = {root / "docs" / name: page.encode() for name, page in pages.items()}
    return {root / "harness" / "list.json": catalogue.content(), **documents}


def _reports(root: Path) -> Files:
    # Runs of no suite are experiments.
    folder, readme, tables = root / "results", root / "README.md", dict[str, bytes]()
    content, text = stores.content(folder, published=True), readme.read_text("utf-8")
    found = store.results_in(content)
    others = next((of for of in found.suites if of.suite.name == unnamed.NAME), None)
    # A next version of a suite has no page while its runs are made.
    keys = {find(name).key for name in names()}
    suites = [of for of in found.suites if of.suite.key in keys]
    if others:
        suites = [of._replace(experiments=unnamed.experiments(others, of.suite.key))
                  for of in suites]  # fmt: skip
    found = found._replace(suites=suites)
    for of in found.suites:
        # The README and the package have the answers of suites that no paper published.
        if (name := of.suite.name) not in names() or not of.suite.has_costs:
            continue
        values = advice.table(of.answers, of.seeds, content.costs, of.suite, catalogue.described())
        compact = json.dumps(values, separators=(",", ":"), allow_nan=False)
        tables[f"{name}.json"] = f"{compact}\n".encode()
        tables[f"{name}.csv"] = frame_csv(suite_pages.published(of))
        if f"<!-- {name} -->" in text:
            text = insert(text, name, suite_pages.readme_table(of))
        if name == FIRST_SUITE:
            query = {
                "length": 16384,
                "pass": "train",
                "memory": None,
                "needs": ["recall", "overwrite"],
            }
            chosen = advice.advise(values, query)
            decode = advice.decoding(values, query, chosen["recommended"])
            text = insert(text, "choose", rendered(
                "readme.md.j2", found=chosen, heads=values["heads"], decode=decode,
            ))  # fmt: skip
    (tested,) = [of for of in found.suites if of.suite.key == validity.suite()] or (
        store.results_in(content, [validity.suite()], published=False).suites
    )
    return {
        **within(folder, store.files_of(found)),
        root / "docs" / "validity.md": validity.page(tested).encode(),
        **within(root / "harness" / "recipes" / "suites", tables),
        readme: text.encode(),
    }


GENERATORS: tuple[Callable[[Path], Files], ...] = (_documents, _reports, _studies, _screen)
