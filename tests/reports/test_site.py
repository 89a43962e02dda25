"""The site in a browser: HARNESS_CHROMIUM names its program, by default `chromium`."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.catalogue import described
from harness.recipes import declared
from harness.records import frame
from harness.records.answers import CorrectAnswers
from harness.records.store import ShallowStore
from harness.records.suites import Suite, find
from reports.advice import advise, choices, recommendation, table
from reports.pages.suite import tables
from reports.site import NAME, site
from tests.conftest import ROOT
from tests.reports.conftest import make_record

PROGRAM = os.environ.get("HARNESS_CHROMIUM") or shutil.which("chromium")
MOST_BYTES = 1_500_000

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no chromium; HARNESS_CHROMIUM names one")


ANSWERS, SEED = 400, 7
"""Answers of a run; and the seed, with which some rows answer both recall and parity."""

ROWS = {
    "softmax", "primal", "primal-moments", "softmax+primal", "linear", "cosformer", "cosine",
    "performer", "flowformer", "retention", "gated-linear", "nystrom", "linformer", "soft", "yoso",
    "reformer", "longformer", "local", "conv", "none",
}  # fmt: skip
"""Rows of `laptop` that are measured in the published records."""


def drawn_suite() -> tuple[Suite, pd.DataFrame, pd.DataFrame]:
    """`ROWS` of `laptop`, their runs, some below the baseline, missing or failed; baselines."""
    suite, generator = find("laptop"), np.random.default_rng(SEED)
    rows = tuple(row for row in suite.rows if row.label in ROWS)
    suite = suite.model_copy(update={"rows": rows})
    runs, baselines = [], []
    for column, question in enumerate(suite.questions):
        common = {"suite": suite.key, "question": question.name, "data": question.name}
        baselines.append({"data": question.name, "name": "most frequent", "score": 30.0})
        for place, row in enumerate(suite.rows):
            if (place + column) % 9 == 8:
                continue
            failed = (place, column) == (1, 0)
            level = generator.choice([0.25, 0.5, 0.7, 0.9, 0.99])
            for seed in question.seeds[: 1 if place == 2 else None]:
                share = float(np.clip(level + generator.normal(0, 0.02), 0, 1))
                correct = generator.random(ANSWERS) < share
                runs.append({
                    **common, "row": row.label, "attention": row.attention, "seed": seed,
                    "status": "failed" if failed else "ok", "score": 100 * float(correct.mean()),
                    "sample": CorrectAnswers.pack(correct.tolist(), [1] * ANSWERS),
                    "baseline": row.attention in ("none", "conv"), "train.lr": 1e-3,
                    "grid": json.dumps({"train.lr": question.rates}), "point": "", "role": "final",
                    "declared": declared(suite)[question.name], "overrides": "{}", "values": "{}",
                    "metric": "accuracy", "unit": "%", "better": "higher", "digits": 1,
                    "scale": 100.0, "exponential": False, "dev_better": "higher", "device": "cpu",
                    "version": "code 1", "outdated": False, "commit": "", "known_failures": 0,
                    "started": "2026-11-25T00:00:00Z", "state_bytes": 1024.0, "parameters": 5e4,
                    "groups": {}, "probes": {}, "train.steps": 600, "evaluations": [],
                })  # fmt: skip
    return suite, pd.DataFrame(runs), pd.DataFrame(baselines)


@pytest.fixture(scope="module")
def content() -> SimpleNamespace:
    suite, runs, baselines = drawn_suite()
    records = []
    for row in ("softmax", "linear"):
        record = make_record(row, budget=f"{suite.key}/parity", task="parity")
        (point,) = record.curve
        curve = [point.model_copy(update={"step": n, "loss": 3 / n}) for n in (1, 2, 3)]
        records.append(record.model_copy(update={"curve": curve}))
    costs = frame.costs(ROOT / "results")
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


@pytest.fixture(scope="module")
def tab(browser: Any) -> tuple[Any, list[str], set[str]]:
    page, errors, requests = browser.new_page(), [], set()
    page.on("console", lambda line: errors.append(line.text) if line.type != "log" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requests.add(request.url.partition("#")[0]))
    return page, errors, requests


@pytest.fixture
def open_page(tab: tuple[Any, list[str], set[str]], path: Path) -> Iterator[Any]:
    """Opens the page; in the end no error was logged, and nothing but the file was requested."""
    page, errors, requests = tab
    errors.clear(), requests.clear()

    def open_(fragment: str = "", width: int = 1400, scheme: str = "light") -> Any:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        page.goto("about:blank")
        page.goto(path.as_uri() + fragment)
        page.wait_for_selector("body[data-ready]")
        return page

    yield open_
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
    drawn = [
        {
            "needs": [name for name in names if generator.random() < 0.2],
            "length": int(generator.choice(lengths)),
            "pass": str(generator.choice(["train", "prefill", "decode"])),
            "memory": None if generator.random() < 0.3 else float(2 ** generator.uniform(18, 32)),
        }
        for _ in range(200)
    ]
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
