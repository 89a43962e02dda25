"""The site in a browser: HARNESS_CHROMIUM names its program, by default `chromium`."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.catalogue import described
from harness.records.store import ShallowStore
from reports.advice import advise, choices, recommendation, table
from reports.pages.suite import tables
from reports.site import NAME, site
from tests.conftest import ROOT
from tests.reports.conftest import make_record
from tests.suite_frames import published_costs, random_query, suite_frames

PROGRAM = os.environ.get("HARNESS_CHROMIUM") or shutil.which("chromium")
MOST_BYTES = 1_500_000

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium; HARNESS_CHROMIUM names one")


@pytest.fixture(scope="module")
def content() -> SimpleNamespace:
    suite, runs, baselines = suite_frames()
    records = []
    for row in ("softmax", "linear"):
        record = make_record(row, budget=f"{suite.key}/parity", task="parity")
        (point,) = record.curve
        curve = [point.model_copy(update={"step": n, "loss": 3 / n}) for n in (1, 2, 3)]
        records.append(record.model_copy(update={"curve": curve}))
    costs = published_costs()
    return SimpleNamespace(
        tables=tables(suite, runs, baselines, costs, described()), costs=costs,
        catalogue=described(), records=records,
        studies=ShallowStore.within(ROOT / "results").read_whole(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def path(content: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("site") / NAME
    file.write_bytes(site(**vars(content)))
    return file


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        # Chromium has no sandbox in a container.
        chromium = started.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser: Any, path: Path) -> Iterator[Any]:
    """Opens the page; in the end no error was logged, and nothing but the file was requested."""
    page, errors, requests = browser.new_page(), [], set()
    page.on("console", lambda line: errors.append(line.text) if line.type != "log" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.add(request.url.partition("#")[0]))

    def open_(fragment: str = "", width: int = 1400, scheme: str = "light") -> Any:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto("about:blank")
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
    page.close()
    assert not errors and requests == {path.as_uri()}


def rows_of(page: Any, place: int = 0) -> list[str]:
    return page.locator(".matrix").nth(place).evaluate(
        "table => [...table.tBodies[0].rows].filter(row => !row.hidden)"
        ".map(row => row.dataset.row)"
    )  # fmt: skip


def members_of(page: Any) -> list[str]:
    return page.locator("#answer tbody th").all_inner_texts()


@pytest.mark.slow
def test_page_and_command_give_the_same_advice_to_queries(content: SimpleNamespace, open_page: Any):
    generator, of = np.random.default_rng(7), content.tables
    values = table(of.answers, of.seeds, content.costs, of.suite, content.catalogue)
    lengths = choices(values)["lengths"]
    names = [*values["questions"]]
    drawn = [{**random_query(generator, names), "length": int(generator.choice(lengths))}
             for _ in range(200)]  # fmt: skip
    queries = [query for query in drawn if query["needs"]]
    found = open_page().evaluate("queries => queries.map(advise)", queries)
    expected = [advise(values, query) for query in queries]
    assert sum(bool(result["members"]) for result in expected) > 20
    assert sum(bool(result["refused"]) for result in expected) > 20
    for query, ours, theirs in zip(queries, expected, found, strict=True):
        # The page does not name the questions of a query of two forms.
        ours["refused"] = re.sub(r" \((causal|bidirectional): .*\)", "", ours["refused"])
        del ours["memory"]
        assert theirs.get("sentence", "") == recommendation(values, query, ours)
        names = ours["members"][0] if ours["members"] else ()
        theirs["members"] = [{name: of[name] for name in names} for of in theirs["members"]]
        assert ours == {name: theirs[name] for name in ours}


def test_a_column_sorts_the_matrix_by_mouse_and_keyboard(open_page: Any):
    page = open_page()
    head = page.locator("th[data-key='recall']")
    head.locator("button").click()
    values = head.first.evaluate(
        "head => [...head.closest('table').tBodies[0].rows]"
        ".map(row => row.children[head.cellIndex].dataset.v)"
    )  # fmt: skip
    scores = [float(value) for value in values if value]
    assert scores == sorted(scores, reverse=True) and set(values[len(scores) :]) <= {""}
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert page.url.endswith("#sort=recall")
    names = page.locator("th[data-key='row'] button").first
    names.press("Space")
    assert rows_of(page, 0) == sorted(rows_of(page, 0))
    assert rows_of(page, 1) == sorted(rows_of(page, 1))


def test_filters_hide_rows_and_columns(open_page: Any, content: SimpleNamespace):
    page = open_page()
    traits = {entry["name"]: entry for entry in content.catalogue["variants"]}
    page.locator("#filters [name=recurrent]").check(force=True)
    single = [name for name in rows_of(page) if "+" not in name]
    assert 0 < len(single) < 20 and all(traits[name]["recurrent"] for name in single)
    assert page.locator("#count").inner_text().endswith("of 40 variants of both tables")
    page.select_option("[name=at]", "1024")
    assert page.locator("th[data-length='1024']:visible").count() == 4
    assert page.locator("th[data-length='4096']:visible").count() == 0


def test_pointing_shows_numbers_and_curves_and_the_crossover_is_marked(open_page: Any):
    def tip(name: str) -> str:
        chart = page.locator(f"#{name} svg").last
        chart.scroll_into_view_if_needed()
        chart.hover(position={"x": 500, "y": 200})
        return page.locator(f"#{name} [aria-label=tip]").text_content()

    page = open_page("#cost=decode+causal&needs=recall")
    assert "tokens" in tip("cost-chart")
    # Of the coloured rows one must cross softmax within the lengths, whatever the costs are.
    page.evaluate("""() => {
        const cross = (row) => row.crossovers["decode causal"];
        chosen = [table.rows.find((row) => cross(row)?.low && cross(row)?.high).row];
        costChart();
    }""")
    assert page.locator("#cost-chart [data-mark=crossover] line").count() == 1
    page.select_option("[name=curve]", "parity")
    assert "loss" in tip("curve-chart")
    field = page.locator("tr[data-row=linear] td[data-question=parity]").first
    assert field.locator("svg").count() == 0
    field.hover()
    field.locator("svg").wait_for()
    # The loss falls from 3 to 1.
    line = field.locator("svg path").get_attribute("d")
    heights = [float(point.split(",")[1]) for point in re.findall(r"[\d.]+,[\d.]+", line)]
    assert heights == sorted({*heights}) and len(heights) == 3


def test_the_form_answers_refuses_and_explains(open_page: Any):
    page = open_page()
    first = members_of(page)
    assert "training, causal" in page.locator("#answer h2").inner_text()
    page.locator("#advisor [name=needs][value=bidirectional-histogram]").check(force=True)
    assert not members_of(page) and "two" in page.locator("#answer .refused").inner_text()
    for other in page.locator("#advisor [name=needs]:not([value=bidirectional-histogram])").all():
        other.uncheck(force=True)
    assert members_of(page) and members_of(page) != first
    assert "training, bidirectional" in page.locator("#answer h2").inner_text()
    page.fill("#advisor [name=memory]", "many")
    assert "2 GiB" in page.locator("#answer .refused").inner_text()
    page.fill("#advisor [name=memory]", "1")
    assert not members_of(page) and "needs more memory" in page.locator("#answer").text_content()


def test_an_address_restores_sort_filters_and_query(open_page: Any):
    page = open_page()
    page.select_option("#advisor [name=pass]", "decode")
    page.select_option("#advisor [name=length]", "8192")
    page.locator("#filters [name=linear]").check(force=True)
    page.locator("th[data-key=parity] button").first.click()
    before = rows_of(page), members_of(page), page.url
    page = open_page("#" + page.url.partition("#")[2])
    assert (rows_of(page), members_of(page), page.url) == before
    assert page.input_value("#advisor [name=length]") == "8192"


@pytest.mark.parametrize(
    ("scheme", "width"),
    # No colour depends on the width.
    [("light", 400), pytest.param("dark", 1400, marks=pytest.mark.slow)],
)  # fmt: skip
def test_nothing_is_serious_to_axe_and_nothing_overflows(open_page: Any, scheme: str, width: int):
    from axe_playwright_python.sync_playwright import Axe

    page = open_page(width=width, scheme=scheme)
    for details in page.locator("details").all():
        details.evaluate("part => { part.open = true; }")
    only = {"resultTypes": ["violations"]}
    violations = Axe().run(page, options=only).response["violations"]
    assert [v["id"] for v in violations if v["impact"] in ("serious", "critical")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_javascript_it_is_one_small_page_of_tables(browser: Any, path: Path):
    assert path.stat().st_size <= MOST_BYTES
    text = path.read_text("utf-8")
    assert "src=" not in text.partition("<script>")[0] and "@import" not in text
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    assert page.locator(".matrix tbody tr:visible").count() == 40
    assert page.locator("th[data-length]:visible").count() == 12
    assert page.locator("form:visible").count() == 0
    assert page.locator("noscript").count() == 1
