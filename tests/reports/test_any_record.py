"""The pages of studies and of costs can be written for any text."""

from xml.etree import ElementTree

import pandas as pd
import pytest
from markdown_it import MarkdownIt

from harness.records.frame import of_costs
from reports import cost
from reports.studies import study_files
from tests.reports.conftest import make_cost
from tests.reports.test_leaderboard import HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE[::4])
def test_pages_of_studies_hold_their_tables_alone(text):
    frame = pd.DataFrame({"name": [text], "value": [1.0]})

    def draw(axes):
        axes.plot([0, 1], [0, 1], label=text)
        axes.set_xticks([0], [text])

    made = study_files("a", "# Head\n", [(text, frame, text)], [(text, draw, 1)], frame)
    ElementTree.fromstring(made["a.svg"])
    tokens = MarkdownIt("commonmark").enable("table").parse(made["a.md"].decode())
    types = {t.type for token in tokens for t in (token, *(token.children or ()))}
    assert not types & {"html_block", "html_inline", "image", "link_open", "code_block", "fence"}
    assert [token.tag for token in tokens if token.type == "heading_open"] == ["h1", "h2"]


@pytest.mark.parametrize("text", [r"$\foo{$", "$x^2$"])
def test_no_text_is_a_formula_in_a_figure(text):
    costs = [make_cost("softmax", length) for length in (256, 512, 1024)]
    costs += [make_cost("linear", 256, status="failed", reason=text)]
    assert (
        f"linear at 256 tokens: failed: {text}" in cost.files(of_costs(costs))["cost.svg"].decode()
    )
