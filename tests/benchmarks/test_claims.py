"""Claims: their records, what is met, and the command that measures them."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from benchmarks import processes, runner
from benchmarks.__main__ import main
from benchmarks.claims import CLAIMS, Claim, ClaimRecord, ProfileRecord, read
from benchmarks.page import SECTIONS, line_of
from benchmarks.profiles import GROUPS, OTHER, autograd_functions, group_of, grouped
from benchmarks.runner import REGISTERED, Runner, measure
from tasks.lra.pathfinder import Pathfinder
from zoo.kernels import dropout

CPU = torch.device("cpu")
CLAIM = Claim("fast", "a over b", {"cpu": 0.5}, "0.1", "time", "a", "b")
SMALL = Claim("small", "a over b", {"cpu": 0.5}, "0.1", "memory", "a", "b")


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A runner of two claims."""
    monkeypatch.setitem(CLAIMS, "layer", [CLAIM, SMALL])
    return Runner("layer", CPU, tmp_path, tiny=True)


def recorded(small, *ratios, reason=""):
    small.record("fast", "small", ratios, reason=reason)
    return small.records[-1]


@pytest.mark.parametrize(("ratios", "met"), [((0.4, 0.5, 0.9), True), ((0.4, 0.51, 0.9), False)])
def test_a_claim_is_met_where_the_median_is_at_most_the_bound(ratios, met, small):
    record = recorded(small, *ratios)
    assert record.met is met and record.ratio and record.ratio.median == ratios[1]
    assert ("NOT MET" in line_of(record)) is not met


def test_a_record_cannot_claim_what_its_ratio_does_not_show(small):
    record = recorded(small, 0.6)
    for changed in ({"met": True}, {"bound": 0.7}, {"reason": "none"}, {"ratio": None}):
        with pytest.raises(ValidationError):
            ClaimRecord.model_validate({**record.model_dump(), **changed})


def test_a_claim_that_cannot_be_measured_has_a_reason_and_is_neither_met_nor_not(small):
    small.skip("a*", "small", "no data")
    assert [record.name for record in small.records] == ["fast", "small"]
    assert all(one.met is None and one.ratio is None for one in small.records)
    assert "no data" in line_of(small.records[0])
    small.skip("b*", "small", "no data")
    assert len(small.records) == 2


def test_a_record_is_read_as_it_was_written_and_apart_from_other_devices(small, tmp_path):
    record = recorded(small, 0.25)
    assert [path.name for path in tmp_path.iterdir()] == ["fast-cpu.json"]
    assert read(tmp_path, "cpu", ClaimRecord) == [record]
    assert read(tmp_path, "cuda", ClaimRecord) == []
    assert read(tmp_path, "cpu", ProfileRecord) == []


def test_every_claim_has_one_name_and_bounds_of_a_device():
    claims = [one for claims in CLAIMS.values() for one in claims]
    names = [one.name for one in claims]
    assert len(names) == len({*names}) and all(one.bounds for one in claims)
    assert not [one.name for one in claims if not (one.what and one.limit.endswith("."))]
    assert {one.quantity for one in claims} == {"time", "memory", ""}
    assert {*SECTIONS} == {*REGISTERED} and all(one.__doc__ for one in SECTIONS.values())


def test_times_are_divided_round_by_round_and_memory_once(small, monkeypatch):
    seconds = {"a": [1.0, 3.0], "b": [2.0, 2.0]}
    monkeypatch.setattr(runner, "sample", lambda calls, *_, **__: [seconds[one()] for one in calls])
    monkeypatch.setattr(runner, "peak_bytes", lambda call, _: {"a": 2**20, "b": 2**22}[call()])
    calls = {"a": lambda: "a", "b": lambda: "b", "c": lambda: "b"}
    assert small.compare(calls, "N=4", rounds=9)["b"] == seconds["b"]
    fast, less = small.records
    assert fast.ratio and (fast.ratio.q1, fast.ratio.q3) == (0.75, 1.25)
    assert fast.setting == "N=4; 3 rounds, alternately" and less.setting == "N=4"
    assert fast.figures["a (ms)"].median == 2000.0 and less.figures["b (MiB)"].median == 4.0
    assert less.ratio and less.ratio.median == 0.25


def test_of_equal_calls_one_is_timed(small):
    called = []
    seconds = small.seconds({"a": (call := lambda: called.append(1)), "b": call}, rounds=9)
    # Two of warm-up, and three rounds.
    assert seconds["a"] is seconds["b"] and len(called) == 5


@pytest.mark.parametrize("records", [2, 1])
def test_workers_divide_the_time_of_two_workers_by_that_of_one(monkeypatch, records, tmp_path):
    clock, commands = iter([0.0, 9.0, 0.0, 10.0, 0.0, 7.0]), []

    def train(command, **_):
        commands.append(command)
        # The first command trains one run.
        for number in range(min(records, len(commands))):
            Path(command[-1], f"{number}.json").touch()

    monkeypatch.setattr("benchmarks.processes.subprocess.run", train)
    monkeypatch.setattr(processes, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr("benchmarks.processes.os.cpu_count", lambda: 2)
    if records < 2:
        with pytest.raises(RuntimeError, match="ended without 2 records"):
            measure("workers", CPU, tmp_path, tiny=True)
        return
    (one,) = measure("workers", CPU, tmp_path, tiny=True)
    assert one.ratio and one.ratio.median == 0.7
    used = [[command[command.index(f"--{of}") + 1] for of in ("workers", "threads")]
            for command in commands]  # fmt: skip
    assert used == [["1", "2"], ["1", "2"], ["2", "1"]]


GROUP_OF = {
    "dropout": "bernoulli_ native_dropout_backward", "norms": "native_layer_norm_backward",
    "matrix products": "mm addmm", "casts and copies": "copy_", "additions": "add_",
    "attention kernel": "_scaled_dot_product_flash_attention_for_cpu",
    "activation": "gelu_backward", "embedding": "embedding_dense_backward",
    "optimiser": "_fused_adamw_", OTHER: "linalg_vector_norm LogSoftmaxBackward0 mul addcmul",
}  # fmt: skip


@pytest.mark.parametrize("group", GROUP_OF)
def test_an_operation_counts_in_the_group_of_its_name(group):
    assert {group_of(f"aten::{name}") for name in GROUP_OF[group].split()} == {group}


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
def test_a_benchmark_finds_every_claim_that_is_made_for_the_device(
    name, tmp_path, tmp_path_factory, monkeypatch
):
    torch.use_deterministic_algorithms(False)
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path_factory.getbasetemp() / "data"))
    monkeypatch.setattr("benchmarks.profiles.WORKLOADS", [("listops", "paper")])
    # Images that differ; numba compiles those of the task for ten to twenty seconds.
    monkeypatch.setattr(Pathfinder, "draw", blank)
    records = measure(name, CPU, tmp_path / "out", tiny=True)
    assert {one.name for one in records} == made(name)
    assert read(tmp_path / "out", "cpu", ClaimRecord) == sorted(records, key=lambda r: r.name)
    profiles = read(tmp_path / "out", "cpu", ProfileRecord)
    assert not profiles or abs(sum(profiles[0].shares.values()) - 1) < 1e-6


def made(name):
    """The claims of a section that are made for a CPU."""
    return {one.name for one in CLAIMS[name] if "cpu" in one.bounds}


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
    names = made("layer")
    lines = out.strip().splitlines()[-len(names) :]
    assert {line.split()[0] for line in lines} == names and err == ""
    assert {json.loads(path.read_text())["name"] for path in tmp_path.glob("*.json")} == names


@pytest.mark.parametrize(("ratio", "code"), [(0.5, 0), (0.51, 1), (None, 0), (ValueError, 1)])
def test_the_exit_code_is_1_where_a_claim_is_not_met_or_a_benchmark_fails(
    ratio, code, monkeypatch, tmp_path, capsys
):
    def measured(runner):
        if ratio is ValueError:
            raise ValueError("no such file")
        recorded(runner, ratio) if ratio else recorded(runner, reason="no data")

    monkeypatch.setitem(CLAIMS, "layer", [CLAIM])
    monkeypatch.setitem(REGISTERED, "layer", measured)
    arguments = ("layer", "--out", str(tmp_path), "--device", "cpu")
    assert run(*arguments, monkeypatch=monkeypatch) == code
    assert ("layer: FAILED" in capsys.readouterr().out) == (ratio is ValueError)


def test_an_unknown_benchmark_is_rejected_with_the_names_of_all(monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        run("layers", monkeypatch=monkeypatch)
    assert "layer, step, profiles" in capsys.readouterr().err
