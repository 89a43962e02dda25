"""`harness check`: a line a check, and an exit code that tells whether all hold."""

import json

import jaxtyping

from zoo.conformance import CHECKS, Check, Finding
from zoo.variants import variants

NO = Finding(False, "not today")


def test_a_variant_is_checked_a_line_a_check(call, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    code, out, _ = call("check", "primal")
    lines = out.splitlines()
    assert code == 0 and len(lines) > 35
    assert all(line.startswith("ok   primal") for line in lines)
    assert any("token mixing: yes" in line for line in lines)


def test_a_check_that_does_not_hold_ends_with_code_1_and_json_tells_which(call, monkeypatch):
    monkeypatch.setattr(
        "zoo.conformance.CHECKS", (Check("none", "never", lambda _: NO, lambda _: True),)
    )
    code, out, _ = call("check", "softmax", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1 and [row["form"] for row in rows] == ["softmax", "softmax, causal"]
    assert rows[0] | {"form": ""} == {
        "form": "",
        "check": "never",
        "passed": False,
        "figure": "not today",
        "gap": "",
    }


def test_a_check_of_nobody_is_refused(call):
    code, _, err = call("check", "softmix")
    assert code == 2 and "did you mean 'softmax'" in err


def test_the_checks_that_fail_are_summed_up_behind_the_others(call, monkeypatch):
    checks = (
        Check("none", "never", lambda _: NO, lambda _: True),
        Check("none", "ever", lambda _: Finding(True, "so"), lambda _: True),
    )
    monkeypatch.setattr("zoo.conformance.CHECKS", checks)
    _, out, _ = call("check", "softmax")
    assert out.splitlines()[-1] == "2 of 4 checks fail: softmax: never; softmax, causal: never"


def test_a_gap_that_is_none_is_told_so(call, monkeypatch):
    expected_failures = {"lengths": "it never was"}
    monkeypatch.setattr(variants.find("none"), "expected_failures", expected_failures)
    quick = tuple(check for check in CHECKS if check.name == "lengths")
    monkeypatch.setattr("zoo.conformance.CHECKS", quick)
    code, out, _ = call("check", "none")
    assert code == 1
    assert "[no gap, but declared as one: it never was; take it out of gaps]" in out


def test_options_that_no_layer_can_have_are_refused_in_one_line(call):
    code, out, err = call("check", "primal", "--set", "primal.rank=0")
    assert (code, out) == (2, "")
    assert err == "harness: primal.rank=0 must be at least 1; raise it\n"
