"""docs/performance.md shows the committed records, and these show what the benchmarks claim."""

from pathlib import Path

import pytest

from benchmarks.claims import CLAIMS, RESULTS, ClaimRecord, is_met, read, write
from benchmarks.page import PAGE, page
from harness.environment import describe
from harness.records.fields import Quartiles, now
from reports.leaderboard import FAILING_COVERAGE

ROOT = Path(__file__).parents[2]
COMMAND = "run: python -m harness.pages"


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def committed(request):
    records = read(ROOT / RESULTS, request.param)
    if not records and request.param == "cuda":
        pytest.skip("no records of a GPU")
    return request.param, {record.name: record for record in records}


def test_the_page_shows_the_committed_records():
    assert page(ROOT) == (ROOT / PAGE).read_text("utf-8"), COMMAND


def test_every_claim_has_a_committed_record_with_its_bound(committed):
    kind, records = committed
    claims = [c for section in CLAIMS.values() for c in section if kind in c.bounds]
    claimed = {claim.name: (claim.what, claim.bounds[kind]) for claim in claims}
    recorded = {record.name: (record.what, record.bound) for record in records.values()}
    assert recorded == claimed, "measure them: python -m benchmarks"


def test_a_bound_that_a_committed_record_does_not_satisfy_is_listed_as_not_met(committed):
    _, records = committed
    text = (ROOT / PAGE).read_text("utf-8")
    listed = {line for line in text.splitlines() if "; the bound is " in line}
    missed = {
        record.what for record in records.values()
        if record.bound and record.ratio and record.ratio.median > record.bound
    }  # fmt: skip
    for what in missed:
        assert any(line.replace("\\", "").startswith(f"- {what}: ") for line in listed), what


@pytest.mark.parametrize("seeds", FAILING_COVERAGE)
def test_pages_state_the_coverage_that_was_simulated(seeds):
    records = [
        record for record in read(ROOT / RESULTS, "cpu")
        if record.name.startswith("statistics-coverage-")
        and record.name.endswith(f"-{seeds}-seeds")
    ]  # fmt: skip
    assert len(records) == 4 and all(record.met for record in records)
    simulated = min(record.figures["fail 0.3 (%)"].median for record in records)
    assert FAILING_COVERAGE[seeds] == pytest.approx(simulated, abs=0.5)
    steady = [f"{name} (%)" for name in ("equal seeds", "sd 1", "sd 5")]
    assert min(record.figures[name].median for record in records for name in steady) >= 94


def small(bound, ratio, reason=""):
    quartiles = Quartiles.of([ratio]) if ratio else None
    return ClaimRecord(
        name="layer-time-literal", what="a over b", bound=bound, limit="0.", setting="N=4",
        ratio=quartiles, met=is_met(quartiles, bound), reason=reason, figures={}, taken=now(),
        seconds=1.0, environment=describe("cpu"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (small(0.5, 0.4), ["Every bound is met.", "| 0.400 | 0.500 | met |"]),
        (small(0.5, 0.6), ["a over b: 0.600; the bound is 0.500.", "| **not met** |"]),
        (small(None, 0.6), ["Every bound is met.", "| 0.600 | – | – |"]),
        (small(0.5, None, "no data"), ["Every bound is met.", "not measured: no data"]),
    ],
)
def test_the_page_says_what_is_met_and_what_is_not(record, expected, tmp_path):
    write(record, tmp_path / RESULTS, "cpu")
    text = page(tmp_path)
    assert not [part for part in expected if part not in text]
    assert "# GPU" not in text and "N=4." in text
