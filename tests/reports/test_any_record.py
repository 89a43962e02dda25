"""The pages of locality and of costs can be written for any text."""

from xml.etree import ElementTree

import pytest

from harness.records.frame import of_costs
from reports import cost
from reports.pages import locality_files
from tests.reports.conftest import make_cost, make_record
from tests.reports.test_leaderboard import HOSTILE


@pytest.mark.slow
@pytest.mark.parametrize("text", HOSTILE[::4])
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
    assert (
        f"linear at 256 tokens: failed: {text}" in cost.files(of_costs(costs))["cost.svg"].decode()
    )
