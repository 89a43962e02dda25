"""The certificate page says what checks found, and the committed one what they find now."""

from pathlib import Path

import jaxtyping
import pytest

from harness.certificate import FIGURES, Examined, page
from zoo.conformance import Finding, Result, Subject, checks_for, run, subjects
from zoo.variants import variants
from zoo.variants.softmax import Softmax

PAGE = Path(__file__).parents[2] / "docs" / "certificates.md"


@pytest.fixture(autouse=True)
def unchecked_shapes():
    """Shapes are the other tests' matter; here a check is to run as it does for a user."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def as_declared(subject: Subject) -> Examined:
    """What the checks find if all is as declared, and the figures that stand on the page.

    That all is as declared is proved by tests/zoo/test_conformance.py, check by check.
    """
    results = []
    expected_failures = subject.variant.expected_failures_of(causal=subject.causal)
    for check in checks_for(subject):
        gap = expected_failures.get(check.name, "")
        if check.name in FIGURES:
            results.append(run(check, subject))
        else:
            results.append(Result(check.name, subject.form, Finding(not gap, ""), gap))
    return Examined(subject, results)


def test_the_committed_page_is_what_the_checks_find():
    checked = [(name, of) for name, of in variants.items() if not of.unchecked]
    examined = [as_declared(one) for name, of in checked for one in subjects(name, of)]
    assert page(examined) == PAGE.read_text("utf-8"), "stale; renew it with: harness certify"


def examined(expected_failures: dict[str, str], fails: tuple[str, ...] = ()) -> list[Examined]:
    variant = type("Odd", (Softmax,), {"expected_failures": expected_failures})
    return [
        Examined(
            subject,
            [
                Result(
                    one.name,
                    subject.form,
                    Finding(one.name not in fails, "so"),
                    expected_failures.get(one.name, ""),
                )
                for one in checks_for(subject)
            ],
        )
        for subject in subjects("odd", variant)
    ]


def cells(text: str) -> dict[str, str]:
    head, _, row = [line for line in text.splitlines() if line.startswith("|")][:3]
    split = ([cell.strip() for cell in line.strip("|").split("|")] for line in (head, row))
    return dict(zip(*split, strict=True))


def test_what_passed_is_ticked_and_what_is_not_claimed_is_a_dash():
    found = cells(page(examined({})))
    assert found["attention"] == "odd"
    assert found["padding"] == found["future"] == found["tokens heard"] == "✓"
    assert found["linear cost"] == found["recurrence"] == "–"


def test_a_gap_is_a_number_that_leads_to_its_reason():
    expected_failures = {"fully masked input": "NaN", "gradients": "off by 42 %"}
    text = page(examined(expected_failures, ("fully masked input", "gradients")))
    assert cells(text)["gradients"] == "1"
    assert cells(text)["padding"] == "2"
    assert "1. odd, gradients: off by 42 %\n2. odd, fully masked input: NaN\n" in text


@pytest.mark.parametrize(
    ("expected_failures", "fails"), [({}, ("gradients",)), ({"gradients": "off"}, ())]
)
def test_nothing_is_certified_while_a_check_is_not_as_declared(expected_failures, fails):
    with pytest.raises(ValueError, match="odd fails 'gradients'"):
        page(examined(expected_failures, fails))


@pytest.mark.parametrize("passes", [True, False])
def test_the_command_certifies_what_holds_and_writes_nothing_else(
    call, tmp_path, monkeypatch, passes
):
    def examine(subject):
        return [Result("gradients", subject.form, Finding(passes, "off by 7"), "")]

    monkeypatch.setattr("zoo.conformance.examine", examine)
    monkeypatch.setattr(variants, "items", lambda: [("softmax", Softmax)])
    out = tmp_path / "page.md"
    code, said, err = call("certify", "--out", str(out))
    assert (code, err) == (0 if passes else 1, "")
    if passes:
        assert said.splitlines() == ["softmax", "softmax, causal", str(out)]
        assert cells(out.read_text("utf-8"))["gradients"] == "✓"
    else:
        assert said.count("off by 7") == 2 and not out.exists()


@pytest.mark.parametrize("command", ["certify", "cards"])
def test_a_page_that_could_not_be_written_is_refused_before_any_work(call, tmp_path, command):
    out = tmp_path / "file" / "page.md"
    out.parent.touch()
    code, said, err = call(command, "--out", str(out))
    assert (code, said) == (2, "")
    assert err == f"harness: {out} cannot be written ({out.parent} is a file); give another --out\n"
