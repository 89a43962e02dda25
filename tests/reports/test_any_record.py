"""The pages of a store can be written for every record that the schema allows."""

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harness.records.record import Record
from harness.records.store import Broken
from reports.pages import cost_files, locality_files
from reports.pages.leaderboard import leaderboard
from reports.tables import as_csv, boards, summary
from tests.reports.conftest import make_cost, make_record

HOSTILE = (
    r"$\foo{$", "$x", "<!-- /leaderboard -->", "![x](http://e/x.png)", "=1+1", "# x", "a\n\n## b",
    "</svg><script>", "|", "`", "_x", "\x00\x1b[31m", "\u202e\u2028", "漢字🙂", "[" * 9, "x" * 3000,
    "listops@1, blocks of 8 shuffled", "", " ",
)  # fmt: skip
TEXT = st.sampled_from(HOSTILE) | st.text(max_size=40)
COUNT = st.integers(1, 2**63 - 1)
POSITIVE = st.floats(0, 1e15, exclude_min=True, exclude_max=True)
PERCENT = st.floats(0, 100)
VALUE = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT
QUARTILES = st.lists(POSITIVE, min_size=3, max_size=3).map(
    lambda values: dict(zip(("q1", "median", "q3"), sorted(values), strict=True))
)
USAGE = st.fixed_dictionaries({
    "seconds_per_1k_steps": QUARTILES, "tokens_per_second": QUARTILES,
    "peak_bytes": COUNT, "parameters": COUNT, "flops": COUNT,
})  # fmt: skip
VARIANT = st.sampled_from(["softmax", "local", "none"]) | TEXT


@st.composite
def records(draw):
    """A record in which every text and every number may be anything that the schema allows."""
    made = json.loads(make_record().model_dump_json())
    spec, attention = made["spec"], draw(VARIANT)
    spec |= {"attention": attention, "layers": [attention] * 2,
             "seed": draw(st.integers(0, 3)), "budget": draw(TEXT),
             "options": draw(st.just({attention: {"window": 8}})
                             | st.dictionaries(TEXT, st.dictionaries(TEXT, VALUE, max_size=2))),
             "overrides": draw(st.dictionaries(TEXT, VALUE, max_size=2)),
             "device": draw(st.sampled_from(["cpu", "cuda"]))}  # fmt: skip
    spec["task"] |= {"name": draw(TEXT), "key": draw(TEXT), "block": draw(st.integers(0, 9))}
    spec["train"] |= {"lr": draw(st.floats(0, exclude_min=True, allow_infinity=False))}
    made["environment"] |= {name: draw(TEXT) for name in ("device", "system", "commit")}
    made["environment"]["versions"] = draw(st.dictionaries(TEXT, TEXT, max_size=2))
    made |= {"reason": draw(TEXT),
             "baselines": draw(st.dictionaries(TEXT, PERCENT, max_size=3)),
             "options": spec["options"],
             "expected_failures": draw(st.dictionaries(TEXT, TEXT, max_size=2))}  # fmt: skip
    if draw(st.booleans()):
        made |= {"status": "failed", "final": None}
    else:
        made["final"] |= {"score": draw(PERCENT), "test_examples": draw(COUNT)}
    made["cost"] = {"own": draw(USAGE), "softmax": draw(USAGE), "time_ratio": draw(QUARTILES),
                    "inference_ratio": draw(QUARTILES)}  # fmt: skip
    return Record.model_validate_json(json.dumps(made))


STORES = st.lists(records(), max_size=3)
NORMAL = (make_record(budget="laptop"), make_record("primal", accuracy=0.4, budget="laptop"))


@pytest.mark.slow
@given(STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_leaderboard_holds_only_its_own_markdown(generated):
    page = leaderboard([*NORMAL, *generated], [Broken(Path("bad`<b>\n# x.json"), "no\n# record")])
    tokens = MarkdownIt("commonmark").enable("table").parse(page)
    types = {token.type for token in tokens} | {
        t.type for one in tokens for t in one.children or ()
    }
    assert not types & {"html_block", "html_inline", "image", "link_open", "code_block", "fence"}
    headings = [token for token in tokens if token.type == "heading_open"]
    assert len(headings) == page.count("\n## ") + 1


@given(STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_csv_holds_a_line_for_each_row_and_no_formula(generated):
    made = boards([*NORMAL, *generated])
    lines = list(csv.reader(io.StringIO(as_csv(made))))
    assert len(lines) == 1 + sum(len(board.rows) + len(board.baselines) for board in made)
    assert not any(cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line)


@given(STORES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_terminal_shows_printable_lines_of_100_columns(generated):
    lines = summary(generated).split("\n")
    assert max(map(len, lines)) <= 100
    assert all(line.isprintable() for line in lines)


@pytest.mark.slow
@given(st.sampled_from(HOSTILE))
@settings(max_examples=5, deadline=None, phases=[Phase.generate])
def test_locality_pages_are_written(text):
    shared = {"machine": text, "key": text, "baselines": {text: 0.5}}
    runs = [
        make_record("local", options={"local": {"window": w, text: w}}, status=status, **shared)
        for w, status in ((8, "ok"), (32, "failed"))
    ]
    runs += [make_record("local", options={"local": {"size": 3}}), make_record("none", **shared)]
    made = locality_files([run.model_copy(update={"reason": text}) for run in runs])
    ElementTree.fromstring(made["locality.svg"])


@pytest.mark.parametrize("text", [r"$\foo{$", "$x^2$"])
def test_no_text_is_a_formula_in_a_figure(text):
    costs = [make_cost("softmax", length) for length in (256, 512, 1024)]
    costs += [make_cost("linear", 256, status="failed", reason=text)]
    assert f"linear at 256 tokens: failed: {text}" in cost_files(costs)["cost.svg"].decode()
