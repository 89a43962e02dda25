"""`harness check`: one line per check, and the exit code."""

import json
import logging
import re

import pytest

from zoo.conformance import Check, Outcome
from zoo.variants import variants


@pytest.fixture
def checks(monkeypatch):
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


@pytest.mark.parametrize(("options", "selected"), [
    (["--fast"], ["ever"]), (["--only", "never, ever"], ["ever", "never"]),
    (["--only", "never", "--only", "ever"], ["ever", "never"]),
], ids=" ".join)  # fmt: skip
def test_checks_are_selected_by_tier_and_by_name(call, checks, options, selected):
    code, out, _ = call("check", "softmax", "--json", *options)
    rows = json.loads(out)["rows"]
    assert [row["check"] for row in rows] == selected * 2 and code == ("never" in selected)
    assert rows[0].pop("seconds") >= 0 and rows[0] == {
        "variant": "softmax", "group": "none", "check": "ever", "detail": "so", "passed": True,
        "expected_failure": "",
    }  # fmt: skip


def test_an_expected_failure_is_named_and_one_that_passes_fails(call, checks, monkeypatch):
    declared = {"ever": "it once failed", "never": "always"}
    monkeypatch.setattr(variants.find("none"), "expected_failures", declared)
    code, out, _ = call("check", "none")
    assert code == 1
    assert "FAIL none: ever: so [passes, but is declared in expected_failures: it once" in out
    assert "ok   none: never: not today [expected failure: always]" in out


def test_what_pytorch_logs_during_a_check_is_not_printed(call, monkeypatch, caplog):
    log = logging.getLogger("torch.any")
    check = Check("none", "logs", lambda _: Outcome(bool(log.error("x")), "no"), lambda _: True)
    monkeypatch.setattr("zoo.conformance.CHECKS", (check,))
    assert call("check", "softmax")[0] == 1 and "x" not in caplog.messages
    log.error("after the command")
    assert caplog.messages[-1] == "after the command"


def test_a_task_is_checked_as_a_variant_is(call, rejected, tmp_path, monkeypatch):
    code, out, _ = call("check", "s3", "--set", "s3.train=30", "--json", "--fast")
    rows = json.loads(out)["rows"]
    assert code == 0 and {row["task"] for row in rows} == {"s3"}
    assert {"determinism", "distinct splits"} < {row["check"] for row in rows}
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "leaking_task.py").write_text(
        "from tasks.synthetic.copying import Copying\n"
        "class Leaking(Copying):\n"
        "    def load(self, split):\n"
        "        return super().load('train')\n"
        "class Exits(Copying):\n"
        "    def load(self, split):\n"
        "        raise SystemExit(0)\n"
    )
    code, out, _ = call("check", "leaking_task:Leaking", "--only", "distinct splits")
    assert code == 1 and "FAIL Leaking: distinct splits: 100.0% of dev is in train" in out
    for argv, message in (
        (("majorit",), "unknown attention variant or task 'majorit'; did you mean 'majority'"),
        (("leaking_task:Exits",), "the data of task 'Exits' cannot be built (SystemExit: 0)"),
        (("s3", "--store", "x"), "s3 is a task, which has no certificate"),
        (("s3", "--only", "padding"), "--only: unknown check 'padding'"),
        (("s3", "--set", "s3.max_len=3"), "s3.max_len=3 must be at least 32"),
    ):
        assert message in rejected("check", *argv)
