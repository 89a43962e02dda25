"""`harness check`: one line per check, and the exit code."""

import json
import re

import pytest

from zoo.conformance import Check, Outcome
from zoo.variants import variants


@pytest.fixture
def checks(monkeypatch):
    """Replaces all checks: one that passes and one that fails, which is not fast."""
    pair = (
        Check("none", "ever", lambda _: Outcome(True, "so"), lambda _: True),
        Check("none", "never", lambda _: Outcome(False, "not today"), lambda _: True, fast=False),
    )
    monkeypatch.setattr("zoo.conformance.CHECKS", pair)


def test_every_check_is_a_line_and_the_failed_ones_are_summed_up(call, checks):
    code, out, _ = call("check", "softmax")
    assert code == 1
    *lines, summary = out.splitlines()
    assert [re.sub(r"\d+\.\d s", "# s", line) for line in lines] == [
        "1 of 4   # s  ok   softmax: ever: so",
        "2 of 4   # s  FAIL softmax: never: not today",
        "3 of 4   # s  ok   softmax, causal: ever: so",
        "4 of 4   # s  FAIL softmax, causal: never: not today",
    ]
    assert summary.startswith("2 of 4 checks fail, in ")
    assert summary.endswith(" s: softmax: never; softmax, causal: never")


@pytest.mark.parametrize(
    ("options", "selected"),
    [
        (["--fast"], ["ever"]),
        (["--only", "never"], ["never"]),
        (["--only", "never, ever"], ["ever", "never"]),
        (["--only", "never", "--only", "ever"], ["ever", "never"]),
    ],
    ids=" ".join,
)
def test_checks_are_selected_by_tier_and_by_name(call, checks, options, selected):
    code, out, _ = call("check", "softmax", "--json", *options)
    rows = json.loads(out)["rows"]
    assert [row["check"] for row in rows] == selected * 2
    assert code == ("never" in selected)


def test_a_name_with_a_comma_is_one_check(call):
    code, out, _ = call("check", "linear", "--only", "causality, fp32", "--json")
    assert code == 0 and [row["check"] for row in json.loads(out)["rows"]] == ["causality, fp32"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--only", "causalty"], "did you mean 'causality'"),
        (["--only", "lengths,fp32"], "unknown check 'fp32'"),
        (["--only", "linear FLOPs"], "linear FLOPs: does not apply to softmax"),
        (["--only", "compiles", "--fast"], "compiles: does not apply to softmax with --fast"),
    ],
)
def test_a_check_that_is_unknown_or_does_not_apply_is_an_error(call, options, message):
    code, out, err = call("check", "softmax", *options)
    assert code == 2 and not out and message in err


def test_the_document_has_a_row_for_each_check(call, checks):
    code, out, _ = call("check", "softmax", "--json")
    rows = json.loads(out)["rows"]
    assert code == 1 and [row["passed"] for row in rows] == [True, False] * 2
    assert all(row.pop("seconds") >= 0 for row in rows)
    assert rows[1] == {
        "variant": "softmax", "group": "none", "check": "never", "passed": False,
        "detail": "not today", "expected_failure": "",
    }  # fmt: skip


def test_an_expected_failure_is_named_and_one_that_passes_fails(call, checks, monkeypatch):
    declared = {"ever": "it once failed", "never": "always"}
    monkeypatch.setattr(variants.find("none"), "expected_failures", declared)
    code, out, _ = call("check", "none")
    assert code == 1
    assert "FAIL none: ever: so [passes, but is declared in expected_failures: it once" in out
    assert "ok   none: never: not today [expected failure: always]" in out


def test_an_unknown_variant_or_another_owner_is_rejected(call):
    code, _, err = call("check", "softmix")
    assert code == 2 and "did you mean 'softmax'" in err
    code, _, err = call("check", "primal", "--set", "softmax.backend=sdpa")
    assert code == 2 and err.startswith("harness: --set softmax: only 'primal' is checked")


@pytest.mark.slow
def test_a_class_whose_forward_exits_fails_its_checks(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exits_in_forward.py").write_text(
        "from zoo.variants.softmax import Softmax\n"
        "class Exits(Softmax):\n"
        "    def forward(self, x, context, mask):\n"
        "        raise SystemExit(0)\n"
    )
    code, out, _ = call("check", "exits_in_forward:Exits")
    assert code == 1 and "FAIL Exits: lengths: raised SystemExit" in out
    assert " checks fail, in " in out.splitlines()[-1]
