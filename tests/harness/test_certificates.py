"""Certificates are records of all checks; generated pages are made only from records."""

import json
import tomllib
from types import SimpleNamespace

import pytest

from harness.checks import checks_of, require_passed
from harness.cli import pages
from harness.records.files import read_lines
from harness.records.store import CertificateStore
from tests.certificates import committed
from tests.conftest import ROOT
from tests.harness.specs import raising
from tests.harness.test_cli_check import checks  # noqa: F401
from tests.zoo.oracle import figures
from zoo.conformance import CHECKS, CHECKS_VERSION, checks_for, configurations
from zoo.contract import Unsupported
from zoo.registry import UserError
from zoo.variants import variants


@pytest.mark.parametrize("name", [name for name, v in variants.built_in() if not v.unchecked])
def test_every_variant_has_a_certificate_of_its_version_and_of_every_check_all_as_declared(name):
    certificate, variant = committed()[name], variants.find(name)
    expected = [
        (form.label, check.name, variant.expected_failures_of(causal=form.causal))
        for form in configurations(name, variant)
        for check in checks_for(form)
    ]
    current = certificate.version == variant.version and certificate.checks == CHECKS_VERSION
    assert current, f"run: harness check {name} --store results"
    assert certificate.passed
    assert [(r.form, r.check, r.expected_failure) for r in certificate.results] == [
        (label, check, declared.get(check, "")) for label, check, declared in expected
    ]


# Checks whose detail has no value that the reason of an expected failure could state.
WITHOUT_VALUE = {"gradients", "large inputs, fp16", "side-effect-free forward"}

DECLARED = [
    pytest.param(result.expected_failure, result.detail, id=f"{result.form}: {result.check}")
    for certificate in committed().values()
    for result in certificate.results
    if result.expected_failure and result.check not in WITHOUT_VALUE
    if "raise" not in result.expected_failure
]


@pytest.mark.parametrize(("reason", "detail"), DECLARED)
def test_the_reason_of_an_expected_failure_states_its_error(reason, detail):
    # The first value that is not zero is the error; bounds and totals follow.
    actual = next(figure for figure in figures(detail) if figure)
    # Hashes are redrawn in each call: their values vary.
    assert any(value / 3 < actual < value * 3 for value in figures(reason))


def test_check_writes_a_certificate_with_failures_and_reads_it_again(call, checks, tmp_path):  # noqa: F811
    code, out, _ = call("check", "softmax", "--store", str(tmp_path))
    store = CertificateStore.within(tmp_path)
    written, path = store.by_variant()["softmax"], tmp_path / "certificates" / "softmax.json"
    assert code == 1 and str(path) in out
    assert not written.passed and written.version == variants.find("softmax").version
    assert [(r.form, r.group, r.check, r.passed) for r in written.results[:2]] == [
        ("softmax", "none", "ever", True), ("softmax", "none", "never", False)
    ]  # fmt: skip
    content = json.loads(path.read_text("utf-8"))
    for damaged in ({**content, "variant": "linear"}, {**content, "taken": "today"}):
        path.write_text(json.dumps(damaged))
        with pytest.raises(UserError, match=f"harness check softmax --store {tmp_path}"):
            store.read_whole()


@pytest.mark.slow
def test_a_certificate_of_other_code_or_other_checks_is_out_of_date():
    found = {
        name: certificate.model_copy(update={"version": variants.find(name).version})
        for name, certificate in committed().items()
        if name != "conv"
    }
    found["fox"] = found["fox"].model_copy(update={"checks": CHECKS_VERSION - 1})
    found["linear"] = found["linear"].model_copy(update={"version": "1.9"})
    found["none"] = found["none"].model_copy(update={"results": found["none"].results[1:]})
    stale = [*pages._stale_certificates(found)]
    assert [line.split()[6].rstrip(":") for line in stale] == ["conv", "fox", "linear", "none"]


def test_pages_that_are_out_of_date_are_named_then_written_and_those_that_cannot_be_are_named(
    tmp_path, monkeypatch, capsys
):
    def run(check: bool) -> tuple[int, list[str]]:
        with pytest.raises(pages.typer.Exit) as end:
            pages.main(check=check, root=tmp_path)
        return end.value.exit_code, capsys.readouterr().out.splitlines()

    page, missing = tmp_path / "docs" / "page.md", raising(Unsupported("it needs a package"))
    monkeypatch.setattr(pages, "_stale_certificates", lambda found: iter(()))
    monkeypatch.setattr(pages, "GENERATORS", (lambda root: {page: b"new"},))
    stale = f"out of date: {page}: python -m harness.cli.pages"
    assert run(check=True) == (1, [stale]) and not page.exists()
    assert run(check=False)[0] == 0 and page.read_bytes() == b"new"
    assert run(check=True)[0] == 0
    page.write_bytes(b"old")
    monkeypatch.setattr(pages, "GENERATORS", (missing, *pages.GENERATORS))
    assert run(check=True) == (1, ["not checked: fail: it needs a package", stale])
    with pytest.raises(Unsupported):
        pages.main(root=tmp_path)


def test_a_wheel_has_every_published_record():
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = [text for text in data["package-data"]["harness"] if text.startswith("results/")]
    packed = {file for pattern in patterns for file in ROOT.glob(pattern)}
    every = {line.file for line in read_lines(ROOT / "results")}
    assert packed == every and len(every) > 10


def test_checks_that_passed_are_kept_across_an_interruption(tmp_path, monkeypatch):
    ran, stop = [], {3: KeyboardInterrupt()}

    def run(check, form):
        if error := stop.pop(len(ran), None):
            raise error
        ran.append(check.name)
        return SimpleNamespace(
            check=check.name, passed=len(ran) != fails, detail="", expected_failure=""
        )

    monkeypatch.setattr("zoo.conformance.run", run)
    monkeypatch.setattr("zoo.conformance.CHECKS", CHECKS[:9])  # each is followed by a write
    fails = 5
    with pytest.raises(KeyboardInterrupt):
        require_passed("none", {}, tmp_path)
    found = CertificateStore.within(tmp_path)
    assert len(ran) == 3 and found.by_variant()["none"].partial
    assert not found.by_variant()["none"].passed
    with pytest.raises(UserError, match=r"none: .*: 1 of \d+ checks fail; .*--no-checks"):
        require_passed("none", {}, tmp_path)
    whole, again = checks_of("none", {}).pairs, len(ran)
    assert again == len(whole)  # 3, and behind them the others
    fails = 0
    require_passed("none", {}, tmp_path)  # from the one that failed on
    assert ran[again:] == [check.name for _, check in whole[4:]]
    assert found.by_variant()["none"].passed
    ran.clear()
    require_passed("none", {}, tmp_path)
    assert not ran
    for rank in ("8", 8):
        require_passed("primal", {"rank": rank}, tmp_path)
    assert found.by_variant()["primal[rank=8]"].passed
    expected = [check.name for _, check in checks_of("primal", {"rank": 8}).pairs]
    assert ran == expected
    monkeypatch.setattr("harness.checks.version_of", lambda variant: "9.0")
    require_passed("primal", {"rank": 8}, tmp_path)
    assert ran == 2 * expected
