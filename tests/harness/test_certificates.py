"""The page of certificates has the results of the checks, and is up to date."""

import pytest
import typer

from harness.cli import certificates
from harness.cli.certificates import FIGURES, page
from tests.certificates import PAGE, committed_figures
from zoo.conformance import CHECKS, Outcome, Result, checks_for, configurations
from zoo.variants import variants
from zoo.variants.softmax import Softmax


def test_the_committed_page_has_every_check_of_every_variant():
    """tests/zoo/test_conformance.py runs the checks and compares their figures with the page."""
    figures = committed_figures()
    results: dict[str, list[Result]] = {}
    for name, variant in variants.items():
        for configuration in [] if variant.unchecked else configurations(name, variant):
            declared = variant.expected_failures_of(causal=configuration.causal)
            for check in checks_for(configuration):
                one = result(check.name, configuration.label, declared.get(check.name, ""))
                if check.name in FIGURES:
                    detail = figures[check.name, configuration.label]
                    one = one._replace(outcome=Outcome(one.passed, detail))
                results.setdefault(name, []).append(one)
    assert page(results) == PAGE.read_text("utf-8"), "run: python -m harness.cli.certificates"


def result(check: str, form: str, reason: str = "") -> Result:
    return Result(check, form, Outcome(not reason, "so"), reason)


def cells(text: str) -> dict[str, str]:
    head, _, row = [line for line in text.splitlines() if line.startswith("|")][:3]
    split = ([cell.strip() for cell in line.strip("|").split("|")] for line in (head, row))
    return dict(zip(*split, strict=True))


def test_a_group_that_passed_is_ticked_and_one_that_does_not_apply_is_a_dash():
    groups = {check.name: check.group for check in CHECKS}
    row = cells(page({"odd": [result("gradients", "odd"), result("token mixing", "odd")]}))
    assert row.pop("attention") == "odd"
    ticked = {groups["gradients"], groups["token mixing"]}
    assert row == {group: "✓" if group in ticked else "–" for group in groups.values()}


def test_a_known_failure_is_a_number_that_refers_to_its_reason():
    failed = [result("fully masked input", form, "NaN") for form in ("odd", "odd, causal")]
    text = page({"odd": [result("gradients", "odd", "off by 42 %"), *failed]})
    row = cells(text)
    assert (row["gradients"], row["padding"]) == ("1", "2")
    assert "1. odd: gradients: off by 42 %\n2. odd: fully masked input: NaN\n\n" in text


@pytest.mark.parametrize("passes", [True, False])
def test_the_program_writes_the_page_only_if_all_is_as_declared(
    capsys, tmp_path, monkeypatch, passes
):
    def examine(configuration):
        return [Result("gradients", configuration.label, Outcome(passes, "off by 7"), "")]

    monkeypatch.setattr(certificates, "examine", examine)
    monkeypatch.setattr(variants, "built_in", lambda: [("softmax", Softmax)])
    out = tmp_path / "page.md"
    if passes:
        certificates.main(out)
        assert capsys.readouterr().out.splitlines() == ["softmax", str(out)]
        assert cells(out.read_text("utf-8"))["gradients"] == "✓"
    else:
        with pytest.raises(typer.Exit) as end:
            certificates.main(out)
        assert end.value.exit_code == 1 and not out.exists()
        assert capsys.readouterr().out.count("off by 7") == 2
