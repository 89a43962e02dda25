"""`harness check`: a line a check, and an exit code that tells whether all hold."""

import json

import jaxtyping

from zoo.conformance import Check, Finding

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
