"""Claims: their records, what is met, and the command that measures them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from benchmarks import layers, processes
from benchmarks.__main__ import line_of, main
from benchmarks.claims import (
    CLAIMS,
    Claim,
    ClaimRecord,
    Finding,
    ProfileRecord,
    Section,
    Setting,
    Times,
    read,
    record_of,
    write,
)
from benchmarks.profiles import GROUPS, OTHER, autograd_functions, group_of, grouped
from benchmarks.sections import SECTIONS
from tasks.lra.pathfinder import Pathfinder
from zoo.kernels import dropout

CPU = torch.device("cpu")

TINY = Setting(device=CPU, tiny=True)
CLAIM = Claim("fast", "a over b", {"cpu": 0.5}, "0.1")


def finding(*ratios, reason=""):
    return Finding("fast", "small", ratios, reason=reason)


@pytest.mark.parametrize(("ratios", "met"), [((0.4, 0.5, 0.9), True), ((0.4, 0.51, 0.9), False)])
def test_a_claim_is_met_where_the_median_is_at_most_the_bound(ratios, met):
    record = record_of(CLAIM, finding(*ratios), "cpu", seconds=1.0)
    assert record.met is met and record.ratio and record.ratio.median == ratios[1]
    assert ("NOT MET" in line_of(record)) is not met


def test_a_record_cannot_claim_what_its_ratio_does_not_show():
    record = record_of(CLAIM, finding(0.6), "cpu", seconds=1.0)
    for changed in ({"met": True}, {"bound": 0.7}, {"reason": "none"}, {"ratio": None}):
        with pytest.raises(ValidationError):
            ClaimRecord.model_validate({**record.model_dump(), **changed})


def test_a_claim_that_cannot_be_measured_has_a_reason_and_is_neither_met_nor_not():
    record = record_of(CLAIM, finding(reason="no data"), "cpu", seconds=0.0)
    assert record.met is None and record.ratio is None
    assert "no data" in line_of(record)


def test_a_record_is_read_as_it_was_written_and_apart_from_other_devices(tmp_path):
    record = record_of(CLAIM, finding(0.25), "cpu", seconds=1.0)
    assert write(record, tmp_path, "cpu").name == "fast-cpu.json"
    assert read(tmp_path, "cpu", ClaimRecord) == [record]
    assert read(tmp_path, "cuda", ClaimRecord) == []
    assert read(tmp_path, "cpu", ProfileRecord) == []


def test_every_claim_has_one_name_and_bounds_of_a_device():
    claims = [one for section in SECTIONS.values() for one in section.claims]
    names = [one.name for one in claims]
    assert len(names) == len({*names}) and all(one.bounds for one in claims)
    assert not [one.name for one in claims if not (one.what and one.limit.endswith("."))]
    assert [*SECTIONS] == [*CLAIMS] and all(section.text for section in SECTIONS.values())


def test_times_are_divided_round_by_round():
    times = Times({"a": lambda: None, "b": lambda: None}, Setting(device=CPU), 3)
    times.seconds = {"a": [1.0, 3.0], "b": [2.0, 2.0]}
    found = times.finding("x", "a", "b", "small")
    assert found.ratios == [0.5, 1.5] and found.setting == "small; 3 rounds, alternately"
    assert found.figures["a (ms)"].median == 2000.0


def test_memory_is_that_of_the_variant_over_that_of_softmax(monkeypatch):
    monkeypatch.setattr(layers, "VARIANTS", ["none"])
    monkeypatch.setattr(layers, "peaks_of", lambda *_: {"none": 50, "softmax": 100})
    one, _ = layers.measure_memory(TINY)
    assert (one.name, one.ratios) == ("memory-none", [0.5])


@pytest.mark.parametrize("records", [2, 1])
def test_workers_divide_the_time_of_two_workers_by_that_of_one(monkeypatch, records):
    clock, commands = iter([0.0, 9.0, 0.0, 10.0, 0.0, 7.0]), []

    def train(command, **_):
        commands.append(command)
        # The first command trains one cell.
        for number in range(min(records, len(commands))):
            Path(command[-1], f"{number}.json").touch()

    monkeypatch.setattr("benchmarks.processes.subprocess.run", train)
    monkeypatch.setattr("benchmarks.processes.time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("benchmarks.processes.os.cpu_count", lambda: 2)
    if records < 2:
        with pytest.raises(RuntimeError, match="ended without 2 records"):
            list(processes.measure_workers(TINY))
        return
    (one,) = processes.measure_workers(TINY)
    assert one.ratios == [0.7]
    used = [[command[command.index(f"--{of}") + 1] for of in ("workers", "threads")]
            for command in commands]  # fmt: skip
    assert used == [["1", "2"], ["1", "2"], ["2", "1"]]


@pytest.mark.parametrize(
    ("operation", "group"),
    [
        ("aten::bernoulli_", "dropout"),
        ("aten::native_dropout_backward", "dropout"),
        ("aten::native_layer_norm_backward", "norms"),
        ("aten::mm", "matrix products"),
        ("aten::addmm", "matrix products"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention kernel"),
        ("aten::copy_", "casts and copies"),
        ("aten::add_", "additions"),
        ("aten::gelu_backward", "activation"),
        ("aten::_fused_adamw_", "optimiser"),
        ("aten::embedding_dense_backward", "embedding"),
        ("aten::linalg_vector_norm", OTHER),
        ("LogSoftmaxBackward0", OTHER),
        ("aten::mul", OTHER),
        ("aten::addcmul", OTHER),
    ],
)
def test_an_operation_counts_in_the_group_of_its_name(operation, group):
    assert group_of(operation) == group


def test_the_autograd_functions_of_dropout_count_as_dropout():
    names = autograd_functions(dropout)
    assert names and {group_of(f"{name}Backward") for name in names} == {"dropout"}


def test_the_groups_of_a_profile_hold_all_of_its_time():
    times = {"aten::mm": 3.0, "aten::bmm": 2.0, "unheard": 1.0}
    sums = grouped(times)
    assert {*sums} == {*GROUPS, OTHER} and sum(sums.values()) == 6.0
    assert sums["matrix products"] == 5.0 and sums[OTHER] == 1.0


def blank(task, index, attempt=0):
    """An image of one level."""
    return SimpleNamespace(pixels=np.full((task.size, task.size), index), target=index % 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["memory", "recurrences", "training_step", "step", "profiles", "seeds_at_once", "pathfinder"],
)
def test_a_benchmark_finds_every_claim_that_is_made_for_the_device(name, tmp_path, monkeypatch):
    torch.use_deterministic_algorithms(False)
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    # Images that differ; numba compiles those of the task for ten to twenty seconds.
    monkeypatch.setattr(Pathfinder, "draw", blank)
    records = SECTIONS[name].records(TINY, tmp_path / "out")
    made = {one.name for one in SECTIONS[name].claims if "cpu" in one.bounds}
    assert {one.name for one in records} == made
    assert read(tmp_path / "out", "cpu", ClaimRecord) == sorted(records, key=lambda r: r.name)
    profiles = read(tmp_path / "out", "cpu", ProfileRecord)
    assert not profiles or abs(sum(profiles[0].shares.values()) - 1) < 1e-6


def run(*arguments, monkeypatch):
    """The exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", *arguments])
    # It changes how the process allocates memory.
    monkeypatch.setattr("harness.environment.keep_freed_memory", lambda: None)
    return main()


@pytest.mark.slow
def test_the_command_writes_its_records_and_a_table(tmp_path, monkeypatch, capsys):
    torch.use_deterministic_algorithms(False)
    run("layer", "--tiny", "--out", str(tmp_path), monkeypatch=monkeypatch)
    out, err = capsys.readouterr()
    made = {one.name for one in SECTIONS["layer"].claims if "cpu" in one.bounds}
    lines = out.strip().splitlines()[-len(made) :]
    assert {line.split()[0] for line in lines} == made and err == ""
    assert {json.loads(path.read_text())["name"] for path in tmp_path.glob("*.json")} == made


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 0), (0.51, 1), (None, 0), (ValueError, 1)])
def test_the_exit_code_is_1_where_a_claim_is_not_met_or_a_benchmark_fails(
    ratio, code, monkeypatch, tmp_path, capsys
):
    def measured(setting):
        if ratio is ValueError:
            raise ValueError("no such file")
        yield finding(ratio) if ratio else finding(reason="no data")

    monkeypatch.setitem(SECTIONS, "layer", Section("layer", "", [CLAIM], measured))
    arguments = ("layer", "--out", str(tmp_path), "--device", "cpu")
    assert run(*arguments, monkeypatch=monkeypatch) == code
    assert ("layer: FAILED" in capsys.readouterr().out) == (ratio is ValueError)


def test_an_unknown_benchmark_is_rejected_with_the_names_of_all(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("layers", monkeypatch=monkeypatch)
    assert "layer, step, profiles" in capsys.readouterr().err
