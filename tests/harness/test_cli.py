"""The commands in this process: what they reject, what they print, and their exit codes."""

import json
import os
import shlex
import sys
from importlib import metadata

import pytest

from harness import studies
from harness.arguments import MOST, names_in, seeds_in
from harness.cli import main
from tasks.registry import tasks
from tests.conftest import one_line
from tests.harness.conftest import SMALL, TREES
from tests.harness.specs import raising
from tests.reports.conftest import make_record

SMOKE = ["run", "--budget", "smoke", "--precision", "fp32"]
TINY = [*SMOKE, *SMALL]

HUGE = 2**50
MANY = ",".join(map(str, range(12_000)))
# Threads.
TOO_MANY = (os.cpu_count() or 1) + 1

# Commands with exit code 2, and what their line names, by default the last word.
REJECTED = """
run
run -a sofmax --json | sofmax
run -a none+mine:Mine[rank=3] | --attention none+mine:Mine --set Mine.OPTION=VALUE
run -t my.txt -a none | my.txt
run -t image -a softmax | harness data import image PATH
run -a primal --set primal.rank | NAME.OPTION=VALUE
run -a primal --set primal.rank=3 --set primal.rank=4 | 3 and 4
run -a softmax --set primal.rank=3 | 'primal'
run -a softmax --device tpu
run -a none --engine rey
run -a none --compile --set train.bucket_by_length=true | is compiled again for each; use either
run -a none --tensorboard /dev/null/curves | give another --tensorboard
run -a linformer --set linformer.rank=500 --match parameters | linformer
run -a none --slurm partition=gpu | --slurm
run -a none --grid train.lr=1,2 | --grid
run -a none --tune --seeds 0,1 | seed 0
run -a none --tune --grid train.lr=1,2 --grid train.lr=3,4 | train.lr
run -a softmax --tune --set train.lr=1e-3
run -a primal -t mqar --set mqar.vocabulary=32 --over task.vocabulary=8,9 | mqar.vocabulary=32
run --suite laptop --questions recal | 'recall'
run --suite chen2023-series | harness data
list prmal
check primal --set softmax.backend=sdpa | softmax
check softmax --only lengths,fp32 | 'fp32'
check softmax --repeat 2 | softmax
check majorit | did you mean 'majority'
check s3 --store x | no certificate
check s3 --only padding | 'padding'
check s3 --set s3.max_len=3 | at least 32
cost | --attention
cost --rerun | 0 of them
cost -a softmax+primal
cost -a primal --set linear.x=1 | 'linear'
advise --length many --pass train --needs recall | 'many'
site --out x --store . | no run
report | harness run --attention primal --store
report --out '' | path
status | harness run --attention primal --store
data import parity . | parity
data fetch retrieval
study spectrun
study spectrum | no run
study ksvd --rank 32
run --atention x | No such option: --atention
run --attention | See: harness run --help
run -a none --device cpu --device cpu | Option --device is given twice
study ksvd --dim x | See: harness study ksvd --help
cost --dim 0 -a none | See: harness cost --help
nothing | See: harness --help
"""

LARGE = [
    f"run -a none --tune --grid train.lr={MANY} | 12000 points",
    f"run -a none --over train.lr={MANY} | 12,000 values",
    f"run -a {'(' * 900}none{')' * 900} | 32 parentheses",
    f"run -a none*{'9' * 5000} | over 4096 characters", f"cost -a primal --batch {2**64}",
    f"run -a none --seeds {'9' * 5000} | seeds", f"cost -a none --dim {'9' * 5000} | --dim",
    f"run -a none -t modular-addition --set modular-addition.symbols={2**20} | of memory",
    f"run -a none --workers {10**20} | --workers", f"run -a none --threads {TOO_MANY}",
    *(f"study ksvd {option} {size} | {named}" for option in ("--dim", "--tokens")
      for size, named in ((2**30, "memory"), (10**20, 10**20))),
    *(f"run -a none -t {name} --set {name}.train={HUGE} | of memory"
      for name in ("majority", "recall", "listops")),
    *(f"{option} {number}" for option in ("cost -a none --seconds", "study ksvd --lr")
      for number in ("inf", "nan")),
]  # fmt: skip


@pytest.mark.slow_after(60)
@pytest.mark.parametrize("case", [*REJECTED.strip().splitlines(), *LARGE])
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_file(
    rejected, tmp_path, monkeypatch, case
):
    command, _, named = case.partition(" | ")
    name, *argv = shlex.split(command)
    named = named or (argv or ["--attention"])[-1] or "empty"
    if name == "run" and not {"--suite", "--budget"} & {*argv}:
        argv = [*(SMOKE if "-t" in argv or "-a" not in argv else TINY)[1:], *argv]
    if "--over" in argv:  # runs differ in their data, too; a line says which are generated
        tasks.find("listops")(**TREES).load("dev")
    monkeypatch.chdir(tmp_path)
    assert named in rejected(name, *argv)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("argv", [["status"], ["report"], ["study", "spectrum"], TINY], ids=str)
def test_a_store_whose_name_is_too_long_is_rejected(rejected, store, argv):
    store.folder.mkdir()
    store.folder = store.folder / ("x" * 300)
    assert "too long" in rejected(*argv, *["-a", "none"] * (argv is TINY))


def test_a_report_of_an_empty_store_or_into_a_file_is_rejected(rejected, store, tmp_path):
    store.folder.mkdir()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for argv in ([], ["--out", "pages"], ["--json"], ["--baselines"]):
        assert "has no record" in rejected("report", *argv)
    store.write(make_record("softmax"))
    for path in (notes, notes / "below"):
        assert str(path) in rejected("report", "--out", str(path))
    assert notes.read_text() == "mine"


def test_the_backend_of_a_notebook_does_not_reach_matplotlib(output, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    output("list")
    assert os.environ["MPLBACKEND"] == "agg"


def test_names_of_several_flags_and_of_one_with_commas_are_joined():
    assert names_in(["softmax", "none,conv", "softmax"]) == ["softmax", "none", "conv"]


def test_seeds_are_numbers_and_ranges_each_once_and_not_too_many():
    texts = {
        "0-4": [0, 1, 2, 3, 4], "7, 2-3 ,0": [7, 2, 3, 0], "0-2,1-3,1": [0, 1, 2, 3], "5-5": [5],
        str(2**32 - 1): [2**32 - 1],
    }  # fmt: skip
    assert {text: seeds_in(text) for text in texts} == texts and len(seeds_in(f"1-{MOST}")) == MOST
    bad = ("4-0", "0-", "-3", "-1-3", "0-1-2", "a-b", "0:4", "1k", f"0-{2**32}", f"0-{MOST}")
    for text in (*bad, "0-999999999999"):
        with one_line("seeds ", "give "):
            seeds_in(text)


@pytest.mark.parametrize("argv", [[], ["data"], ["study"]])
def test_a_command_of_commands_alone_prints_its_help(capsys, argv):
    ends = []
    for more in ([], ["--help"]):
        with pytest.raises(SystemExit) as end:
            main([*argv, *more])
        ends.append((end.value.code, *capsys.readouterr()))
    assert ends[0] == ends[1] == (0, text := ends[0][1], "") and text.startswith("Usage: ")
    assert argv != ["study"] or all(f"  {name} " in text for name in studies.names())


def test_the_version_is_the_one_of_the_installed_package(call):
    assert call("--version")[:2] == (0, f"harness {metadata.version('attention-harness')}\n")


def test_a_run_prints_a_summary_and_its_record_and_is_not_repeated(call, output, store, outcomes):
    argv = (*TINY, "-a", "none,softmax", "-a", "none", "--seeds", "0, 2")
    code, out, err = call(*argv)
    records, broken = store.read()
    assert (code, err, broken) == (0, "", [])
    assert [(record.spec.attention, record.spec.seed) for record in records] == [
        ("none", 0), ("none", 2), ("softmax", 0), ("softmax", 2),
    ]  # fmt: skip
    paths = [store.path(record.spec) for record in records]
    assert set(map(str, paths)) <= set(out.splitlines())
    # One row per variant.
    summary = out.split("\nlistops, ")[-1].split("\n\n")[0].splitlines()
    rows = [line for line in summary if line.startswith(("none", "softmax"))]
    assert len(rows) == 2 and max(map(len, summary)) <= 100
    assert output(*argv).count("(already present; run it again with --rerun)") == 4
    assert store.read()[0] == records
    assert "already present" not in output(*TINY, "-a", "none", "--seeds", "2", "--rerun")
    same = [old == new for old, new in zip(records, store.read()[0], strict=True)]
    assert same == [True, False, True, True]


def test_a_failed_run_is_listed_with_its_reason_and_exit_code_1(call, store, outcomes, monkeypatch):
    monkeypatch.setattr("harness.runner.counts_of", raising(RuntimeError("boom")))
    code, out, err = call(*TINY, "-a", "softmax")
    assert code == 1 and "failed (1 of 1)" in out and "RuntimeError: boom" in err
    assert store.read()[0][0].status == "failed"
    code, out, _ = call(*TINY, "-a", "softmax", "--json")
    (run,) = json.loads(out)["runs"]
    assert (code, run["status"], run["reason"]) == (1, "failed", "RuntimeError: boom")


def test_an_interrupted_run_is_continued_by_the_same_command(call, interrupt_at):
    interrupt_at(1, KeyboardInterrupt())
    argv = (*TINY, "-a", "none", "--no-cost")
    line = "harness: interrupted; the same command continues\n"
    assert call(*argv)[::2] == (130, line) and call(*argv)[::2] == (0, "")


def test_only_a_class_is_searched_in_the_current_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "odd.py").write_text("raise SystemExit(0)\n")
    assert call("check", "primal", "--set", "primal.rank=0")[0] == 2 and "" not in sys.path
    code, out, err = call("check", "odd:Odd")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("harness: 'odd:Odd' cannot be loaded")
