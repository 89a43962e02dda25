"""Claims: their records, what is met, the page, and the command that measures them."""

import sys
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from benchmarks import calls
from benchmarks.__main__ import RESULTS, main
from benchmarks.claims import CLAIMS, Result, Setup, of_section
from benchmarks.costs import TWINS
from benchmarks.sections import SECTIONS, measure
from harness.costs.sweep import Outcome
from harness.environment import describe
from harness.recipes import find
from harness.records.claim import ClaimRecord, is_met, read, write
from harness.records.fields import Quartiles, now
from reports.leaderboard import FAILING_COVERAGE
from reports.pages.performance import PAGE, line_of, page
from tasks.lra.pathfinder import Pathfinder
from tests.conftest import ROOT
from tests.harness.specs import LIMITS, MEASURED
from tests.reports import simulated
from zoo.contract import Size
from zoo.registry import UserError
from zoo.variants import variants

SECTION_OF = dict(zip(CLAIMS["name"], CLAIMS["section"], strict=True))


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Measures two claims, `fast` and `small`, of which a section has these results."""
    claims = CLAIMS[:2].assign(name=["fast", "small"], cpu="0.5", of="a", over="b", quantity="time")
    monkeypatch.setattr("benchmarks.claims.CLAIMS", claims)

    def make(*results, store=tmp_path):
        monkeypatch.setitem(SECTIONS, "layer", lambda setup: iter(results))
        return measure("layer", "cpu", store, tiny=True)

    return make


@pytest.mark.parametrize(("ratios", "met"), [((0.4, 0.5, 0.9), True), ((0.4, 0.51, 0.9), False)])
def test_a_claim_is_met_where_the_median_is_at_most_the_bound(ratios, met, measured):
    (record,) = measured(Result("fast", "N=4", Quartiles.of(ratios)))
    assert record.met is met and record.ratio and record.ratio.median == ratios[1]
    assert ("NOT MET" in line_of(record)) is not met


def test_a_record_cannot_claim_what_its_ratio_does_not_show(measured):
    (record,) = measured(Result("fast", "N=4", Quartiles.of([0.6])))
    for changed in ({"met": True}, {"bound": 0.7}, {"reason": "none"}, {"ratio": None}):
        with pytest.raises(ValidationError):
            ClaimRecord.model_validate({**record.model_dump(), **changed})


def test_a_claim_that_cannot_be_measured_has_a_reason_and_is_neither_met_nor_not(measured):
    records = measured(Result("*s*", "N=4", reason="no data"), Result("b*", "N=4", reason="none"))
    assert [record.name for record in records] == ["fast", "small"]
    assert all(record.met is None and record.ratio is None for record in records)
    assert "no data" in line_of(records[0])


def test_a_record_is_read_as_it_was_written_and_apart_from_other_devices(measured, tmp_path):
    measured(Result("fast", "N=4", Quartiles.of([0.75])))
    records = measured(Result("fast", "N=4", Quartiles.of([0.25])))
    assert [path.name for path in tmp_path.iterdir()] == ["benchmarks.jsonl"]
    assert read(tmp_path, "cpu") == {"fast": records[0]} and read(tmp_path, "cuda") == {}
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace("0.25", "0.2"))
    with pytest.raises(UserError, match=r"line 1: .*; delete the line, and measure it again"):
        read(tmp_path, "cpu")
    with pytest.raises(UserError, match=r"line 1 of .* is not a record"):  # which it would sign
        measured(Result("small", "N=4", Quartiles.of([0.75])))


def test_every_claim_has_one_name_a_bound_of_a_device_and_a_section():
    assert len(SECTION_OF) == len(CLAIMS) and all(CLAIMS["cpu"] + CLAIMS["cuda"])
    assert all(CLAIMS["what"]) and CLAIMS["limit"].str.endswith(".").all()
    assert {*CLAIMS["quantity"]} == {"time", "memory", ""}
    assert [*SECTIONS] == [*CLAIMS["section"].unique()]


def test_times_are_divided_round_by_round(monkeypatch, tmp_path, measured):
    seconds = {"a": [1.0, 3.0], "b": [2.0, 2.0]}
    monkeypatch.setattr(calls, "sample", lambda calls, *_, **__: [seconds[c()] for c in calls])
    setup = Setup(of_section("layer", "cpu")[:1], "cpu", tmp_path)
    found = calls.seconds_of(setup, {"a": lambda: "a", "b": lambda: "b"}, rounds=9)
    (fast,) = calls.compared(setup, found, "N=4")
    assert found == seconds and fast.ratio and (fast.ratio.q1, fast.ratio.q3) == (0.75, 1.25)
    assert fast.setting == "N=4; 2 rounds, alternately"
    assert fast.figures["a (ms)"].median == 2000.0


@pytest.fixture
def costs(monkeypatch):
    """Measured values by variant, or the reason why there are none; and the measured costs."""
    by_variant, specs = {}, []

    def measure(spec, *_, **__):
        specs.append(spec)
        found = by_variant.get(spec.attention, MEASURED)
        reason, found = (found, None) if isinstance(found, str) else ("", found)
        return Outcome("timeout" if reason else "ok", reason, found)

    monkeypatch.setattr("harness.costs.sweep.measure_in_process", measure)
    monkeypatch.setattr("harness.costs.measurement.measure_limits", lambda *_: LIMITS)
    return SimpleNamespace(of=by_variant, specs=specs)


def quartiles(median):
    return Quartiles(q1=0.9 * median, median=median, q3=1.1 * median)


def test_claims_about_layers_are_ratios_of_costs_which_are_measured_once(costs, tmp_path):
    values = {"memory_bytes": 3 * 2**20, "ratio": quartiles(0.5), "seconds": quartiles(8.0)}
    costs.of |= {"delta": MEASURED.model_copy(update=values), "kda": "it took too long"}
    costs.of["gdn2"] = costs.of["delta"].model_copy(update={"reference": "sdpa"})
    softmax = {"memory_bytes": 2**22, "ratio": quartiles(2.0), "seconds": quartiles(1.0)}
    costs.of["softmax"] = MEASURED.model_copy(update=softmax)
    found = {record.name: record for record in measure("recurrences", "cpu", tmp_path, tiny=True)}
    assert found.keys() == claimed("recurrences") and len(costs.specs) == len(
        {spec.id for spec in costs.specs}
    )
    time, memory = found["softmax-fp32-delta"], found["softmax-memory-fp32-delta"]
    # Both were timed with the fastest softmax, SDPA in twice the time of that.
    assert time.ratio and time.ratio.median == 0.25 and memory.ratio and memory.ratio.median == 0.75
    assert time.ratio.q1 == pytest.approx(0.45 / 2.2)
    assert time.figures["delta, fp32 (ms)"].median == 8000.0
    assert memory.figures["softmax[backend=sdpa], fp32 (MiB)"].median == 4.0
    assert time.setting.startswith("B=4 N=64 D=64 H=2, causal, fp32, train; each alternately with")
    # Costs that were timed with two different softmaxes have the ratio of their seconds.
    other = found["softmax-fp32-gdn2"]
    assert other.ratio and other.ratio.median == 8 and "alternately" not in other.setting
    # 16 times the tokens, in the same time.
    assert found["length-delta"].ratio and found["length-delta"].ratio.median == 1 / 16
    assert found["decode-kda"].reason == "it took too long" and found["decode-kda"].met is None
    costs.specs.clear()
    again = measure("recurrences", "cpu", tmp_path, tiny=True)
    # What ended by its timeout is final, too.
    assert not costs.specs
    assert {r.name: r.ratio for r in again} == {name: r.ratio for name, r in found.items()}


@pytest.mark.parametrize("section", ["layer", "memory", "library_twins"])
def test_every_layer_of_a_claim_is_measured_in_the_shape_of_its_section(costs, tmp_path, section):
    records = measure(section, "cpu", tmp_path, tiny=True)
    assert {record.name for record in records} == claimed(section)
    assert {record.reason for record in records} == {""}
    batch = {"layer": 8, "memory": 4, "library_twins": 2}[section]
    assert {(spec.batch, spec.length, spec.causal) for spec in costs.specs} == {(batch, 64, False)}


def test_claims_about_steps_are_ratios_of_costs_of_the_published_run(costs, tmp_path, shared_data):
    records = measure("step", "cpu", tmp_path, tiny=True)
    assert {record.name for record in records} == claimed("step")
    (task,) = {(spec.level, spec.task.key, spec.operation) for spec in costs.specs}
    assert task[0] == "step" and task[1].startswith("listops@") and task[2] == "train"
    rows = [(spec.attention, spec.options[spec.attention].get("backend")) for spec in costs.specs]
    assert rows == [("primal", None), ("primal", "literal"), ("softmax", "sdpa"), ("none", None)]
    assert records[0].setting.startswith(f"{task[1]}: B=")


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_a_layer_of_a_package_gives_new_tokens(name):
    twin = variants.find(variants.name_class(f"benchmarks.twins:{name}"))
    layer = twin(Size(dim=64, heads=2, max_len=256, causal=False, dropout=0.0))
    tokens, losses = layer(x := torch.randn(2, 256, 64))
    assert tokens.shape == x.shape and not losses and not torch.equal(tokens, x)


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_the_time_of_two_workers_is_divided_by_the_time_of_one(monkeypatch, status, tmp_path):
    clock, made = iter([10.0, 7.0]), []

    def train(attention, task, seeds, *, workers, threads, **_):
        made.append((len(seeds), workers, threads))
        return pd.DataFrame({"status": [status] * len(seeds)})

    def timed(device):
        return lambda call, repeats: (call(), next(clock))[1]

    monkeypatch.setattr(calls.harness, "run", train)
    monkeypatch.setattr(calls, "wall_clock", timed)
    monkeypatch.setattr(calls.os, "cpu_count", lambda: 2)
    if status == "failed":
        with pytest.raises(RuntimeError, match="ended without 1 finished runs"):
            measure("workers", "cpu", tmp_path, tiny=True)
        return
    (record,) = measure("workers", "cpu", tmp_path, tiny=True)
    assert record.ratio and record.ratio.median == 0.7
    assert made == [(1, 1, 2), (2, 1, 2), (2, 2, 1)]


def one_level(task, index, attempt=0):
    """An image of one level."""
    return SimpleNamespace(pixels=np.full((task.size, task.size), index), target=index % 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["training_step", "loading", "pathfinder"])
def test_a_benchmark_finds_every_claim_for_the_device(name, tmp_path, shared_data, monkeypatch):
    torch.use_deterministic_algorithms(False)
    # Images that differ; numba compiles the code of the task for ten to twenty seconds.
    images = name == "pathfinder"
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data" if images else shared_data))
    monkeypatch.setattr(Pathfinder, "draw", one_level)
    records = measure(name, "cpu", tmp_path / "out", tiny=True)
    assert {record.name for record in records} == claimed(name)
    found = {record.name: record for record in records}
    assert read(tmp_path / "out", "cpu") == found
    if name == "loading":
        (step, run) = (found[f"{what}-retrieval"].figures[f"retrieval, {of} (ms)"].median
                       for what, of in (("gather", "step"), ("load", "run")))  # fmt: skip
        assert run == pytest.approx(step * find("paper").of_task("retrieval").train["steps"])


def test_simulated_leaderboards_have_every_claim(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "simulate", lambda *_: next(covered))
    monkeypatch.setattr(simulated, "power", lambda *_: 0.0)
    covered = cycle([(0.93, True), (0.93, False)])
    records = measure(STATISTICS, "cpu", tmp_path, tiny=True)
    found = {record.name.removeprefix("statistics-"): record for record in records}
    assert {record.name for record in records} == claimed(STATISTICS)
    false = found["false-separations-losses-2-seeds"]
    assert (false.ratio.median, false.figures["sd 1 (%)"]) == (10, Quartiles.of([25.0, 50.0, 75.0]))
    assert found["coverage-losses-2-seeds"].ratio.median == pytest.approx(1)
    assert found["power"].ratio == Quartiles.of([0.001])


STATISTICS = "leaderboard_statistics"


def claimed(name):
    """The claims of a section about a CPU."""
    return {claim.name for claim in of_section(name, "cpu")}


def run(*arguments, monkeypatch):
    """The exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    # It changes how the process allocates memory.
    monkeypatch.setattr("harness.environment.keep_freed_memory", lambda: None)
    return main()


def test_the_command_writes_its_records_and_a_table(tmp_path, monkeypatch, capsys, costs):
    run("layer", "--tiny", "--out", str(tmp_path), monkeypatch=monkeypatch)
    out, err = capsys.readouterr()
    names = claimed("layer")
    lines = out.strip().splitlines()[-len(names) :]
    assert {line.split()[0] for line in lines} == names and err == ""
    assert read(tmp_path, "cpu").keys() == names


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 0), (0.51, 1), (None, 0), (ValueError, 1)])
def test_the_exit_code_is_1_where_a_claim_is_not_met_or_a_benchmark_fails(
    ratio, code, monkeypatch, tmp_path, capsys, measured
):
    def section(setup):
        if ratio is ValueError:
            raise ValueError("no such file")
        found = {"ratio": Quartiles.of([ratio])} if ratio else {"reason": "no data"}
        yield Result("fast", "N=4", **found)

    monkeypatch.setitem(SECTIONS, "layer", section)
    arguments = ("layer", "--out", str(tmp_path), "--device", "cpu")
    assert run(*arguments, monkeypatch=monkeypatch) == code
    assert ("layer: FAILED" in capsys.readouterr().out) == (ratio is ValueError)


def test_without_a_name_every_section_but_the_workers_is_measured(monkeypatch, tmp_path, capsys):
    measured = []
    monkeypatch.setattr(
        "benchmarks.sections.measure", lambda name, *_, **__: measured.append(name) or []
    )
    arguments = ("--out", str(tmp_path), "--device", "cpu")
    assert run(*arguments, monkeypatch=monkeypatch) == 0
    assert measured == [name for name in SECTIONS if name != "workers"]


def test_an_unknown_benchmark_is_rejected_with_the_names_of_all(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("layers", monkeypatch=monkeypatch)
    assert "layer, step, memory" in capsys.readouterr().err


COMMAND = "run: python -m harness.pages"


@pytest.fixture(scope="module", params=["cpu", "cuda"])
def committed(request):
    records = read(ROOT / RESULTS, request.param)
    if not records and request.param == "cuda":
        pytest.skip("no records of a GPU")
    return request.param, records


def test_the_page_shows_the_committed_records():
    assert page(ROOT / RESULTS, SECTION_OF) == (ROOT / PAGE).read_text("utf-8"), COMMAND


def test_every_claim_has_a_committed_record_with_its_bound(committed):
    kind, records = committed
    claims = [claim for section in SECTIONS for claim in of_section(section, kind)]
    claimed = {claim.name: (claim.what, claim.bound) for claim in claims}
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
        record for name, record in read(ROOT / RESULTS, "cpu").items()
        if name.startswith("statistics-coverage-") and name.endswith(f"-{seeds}-seeds")
    ]  # fmt: skip
    assert len(records) == 4 and all(record.met for record in records)
    simulated = min(record.figures["fail 0.3 (%)"].median for record in records)
    assert FAILING_COVERAGE[seeds] == pytest.approx(simulated, abs=0.5)
    steady = [f"{name} (%)" for name in ("equal seeds", "sd 1", "sd 5")]
    assert min(record.figures[name].median for record in records for name in steady) >= 94


def record_of(bound, ratio, reason=""):
    quartiles = Quartiles.of([ratio]) if ratio else None
    return ClaimRecord(
        name="layer-time-literal", what="a over b", bound=bound, limit="0.", setting="N=4",
        ratio=quartiles, met=is_met(quartiles, bound), reason=reason, figures={}, taken=now(),
        seconds=1.0, environment=describe("cpu"),
    )  # fmt: skip


@pytest.mark.parametrize(("record", "expected"), [
    (record_of(0.5, 0.4), ["Every bound is met.", "| 0.400 | 0.500 | met |"]),
    (record_of(0.5, 0.6), ["a over b: 0.600; the bound is 0.500.", "| **not met** |"]),
    (record_of(None, 0.6), ["Every bound is met.", "| 0.600 | – | – |"]),
    (record_of(0.5, None, "no data"), ["Every bound is met.", "not measured: no data"]),
])  # fmt: skip
def test_the_page_says_what_is_met_and_what_is_not(record, expected, tmp_path):
    write(record, tmp_path, "cpu")
    text = page(tmp_path, SECTION_OF)
    assert not [part for part in expected if part not in text]
    assert "# GPU" not in text and "N=4." in text
