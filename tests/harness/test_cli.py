"""The commands in this process: what they reject, what they print, and their exit codes."""

import json
import os
import shlex
import sys
from importlib import metadata

import pytest
import torch

from harness import recipes, studies
from harness.arguments import MOST, seeds_in
from harness.cli import main
from tasks.registry import tasks
from tasks.synthetic.base import SyntheticTask
from tests.harness.conftest import SMALL, TREES
from tests.harness.specs import raising
from tests.reports.conftest import make_record
from zoo.registry import UserError

SMOKE = ["run", "--budget", "smoke", "--precision", "fp32"]
TINY = [*SMOKE, *SMALL]

HUGE = 2**50

TOO_MANY = (os.cpu_count() or 1) + 1
"""Threads."""

ASK = "advise --length 16 --pass train"

REJECTED = {
    # names, with the most similar one
    "run -a sofmax": "did you mean 'softmax'?",
    "run -t listop -a softmax": "did you mean 'listops'?",
    "run -a primal --set primal.rnk=3": "did you mean 'rank'?",
    "run -a none --set train.lrr=3": "did you mean 'lr'?",
    # data that no test has generated
    "run -a primal -t listops --set listops.seed=7 --set primal.rank=-1": "must be at least 1",
    "run -a primal -t listops --set listops.seed=7 --over primal.rank=4,-1": "at least 1",
    "run --suite laptop -a primal --set primal.rank=-1": "must be at least 1",
    "run -a softmax --set primal.rank=3": "'primal'; give one of listops, model, softmax, train",
    "run -a softmax --device tpu": "not one of auto, cpu, cuda",
    **({} if torch.cuda.is_available() else {"run -a none --device cuda": "use --device cpu"}),
    "run -a none --positions rotery": "did you mean 'rotary'",
    "list prmal": "did you mean 'primal'?",
    "list --budget ''": "--budget is empty; give a value",
    "list --suite lptop": "did you mean 'laptop'?",
    "run --suite laptop --questions cpy": "'copy'",
    "run -a none --engine rey": "did you mean 'ray'?",
    "cost -a softmx": "did you mean 'softmax'?",
    "cost -a none --pass backward": "unknown pass 'backward'",
    "cost -a none --level model": "unknown level 'model'",
    "study spectrun": "did you mean 'spectrum'?",
    "check primal --set softmax.backend=sdpa": "--set softmax: only 'primal' is checked",
    "check softmax --only causalty": "did you mean 'causality'",
    "check softmax --only lengths,fp32": "unknown check 'fp32'",
    "check softmax --only 'linear FLOPs'": "linear FLOPs: does not apply to softmax",
    "check softmax --only compiles --fast": "does not apply to softmax with --fast",
    # forms of values
    "run -a softmax,,primal": "holds an empty name",
    "run -a none+mine:Mine[rank=3]": "--attention none+mine:Mine --set Mine.OPTION=VALUE",
    "run -a none --set train.betas=0.9": "train.betas=0.9: two numbers sep",
    "run -a primal --set primal.rank=3 --set primal.rank=4": "two values, 3 and 4; give one",
    "run -a primal --set primal.rank": "not of the form NAME.OPTION=VALUE",
    "run -a softmax --over task.max_len": "not of the form NAME.OPTION=VALUE,VALUE",
    "run -a primal --over primal.rank=4": "--over primal.rank=4 gives one value",
    "run -a primal --over primal.rank=4,4": "give two values or more that differ",
    "run -a softmax --over train.lr=1e-3,0.001": "--over train.lr=1e-3,0.001 gives one value",
    "run -a softmax --seeds ''": "--seeds is empty",
    "run -a softmax --seeds 0,-1": "are not all from 0 to 4294967295",
    "advise --length many --pass train --needs copy": "'many'",
    f"{ASK} --needs recall --memory lots": "'lots'",
    "report --out ''": "the path is empty",
    "list ''": "name is empty",
    f"run -a none --tune --grid train.lr={','.join(map(str, range(12_000)))}": "12000 points",
    f"run -a none --over train.lr={','.join(map(str, range(12_000)))}": "12,000 values",
    f"run -a {'(' * 900}none{')' * 900}": "nests over 32 parentheses",
    "advise --length 16 --pass train --needs copy --store nowhere": "'nowhere' is not a folder",
    "run -a none -t my.txt": "my.txt cannot be read (No such file or directory); give a table",
    "run -a math:pi": "cannot be loaded from math:pi",
    # what options cannot be together, or be at all
    "run": "no --attention is given",
    "run -a none --grid train.lr=1,2": "give --tune as well",
    "run -a none --tune --over train.lr=1,2": "--over and --tune are not possible at once",
    "run -a none --questions copy": "give --suite laptop as well",
    "run -a none --set model.drop_path=0.5": "drop_path has no meaning for sequences; leave",
    "run -a none --set train.augment.mixup=0.5": "augment has no meaning for sequences; leave",
    "run -a none -t adding --set train.label_smoothing=0.5": "no meaning for numbers as targets",
    "run --suite laptop --seeds 1": "not possible: suite laptop fixes it; leave it out",
    "run -a none --match size": "--match 'size' is not possible; give parameters",
    "run -a linformer --set linformer.rank=500 --match parameters": "width 1, softmax has",
    "run -a none --tune --seeds 0,1": "seed 0 chooses the point of the grid",
    "run -a none --tune --grid train.lr": "not of the form NAME.OPTION=VALUE,VALUE",
    "run -a none --tune --grid train.lr=1,2 --grid train.lr=3,4": "train.lr twice; give all",
    "run -a none --slurm partition=gpu": "--slurm is for jobs of Slurm",
    "run -a none --engine slurm --slurm partition": "give NAME=VALUE, as partition=gpu",
    "run -a none --engine slurm --slurm timeout_min=soon": '"timeout_min" expected type',
    "run --suite laptop --set train.lr=1": "--set train",
    "run -a none --budget laptop@2/copy --precision bf16": "fp32",
    "run -a none --budget laptop@2/copy --task mqar": "selective-copying",
    "check none --fast --store x": "a certificate has every check",
    "check none --only lengths --store x": "a certificate has every check",
    "cost -a none --batch tokens=8": "less than one sample",
    "cost -a none --heads 3": "not a multiple of heads",
    "cost -a softmax+primal": "give --level step",
    "cost -a primal --level step --pass decode": "give --level layer",
    "cost -a primal --set linear.x=1": "no row uses 'linear'",
    f"cost -a primal --batch {2**64}": "an integer from 1 to",
    f"{ASK} --needs recall --memory {'9' * 400}": "is not an amount",
    # data and stores
    "run -a softmax -t image": "harness data import image PATH",
    "data import image nowhere": "does not exist",
    "data import parity .": "parity needs no files from 'harness data'; nothing to import",
    "data import imagee .": "unknown task 'imagee'; did you mean 'image'",
    "data fetch listops": "'harness data'; the official files are for listops-lra",
    "data fetch retrieval": "retrieval has no source that can be verified; run 'harness data impo",
    "run --suite laptop --questions language": "harness data import wikitext",
    "run --suite chen2023-series": "harness data",
    "run --suite chen2023-d4rl": "halfcheetah_medium_expert-v2.hdf5",
    "site --out x --store nowhere": "'nowhere'",
    "site --out x --store .": "no run",
    "report": "is not a folder; make records with: harness run --attention primal --store",
    "status": "is not a folder; make records with: harness run --attention primal --store",
    "cost": "no --attention is given",
    "cost --rerun": "runs has 0 of them",
    # studies
    "study ksvd --losses ksdv": "did you mean 'ksvd'?",
    "study ksvd --trained none": "unknown value of --trained 'none'",
    "study ksvd --rank 32": "rank 32 of 32 features and 64 tokens spans all",
    "study ksvd --seeds a": "are not all whole numbers",
    "study ksvd --run missing": "unknown run 'missing'",
    "study spectrum": "no run of store",
    # grids, sweeps and rows
    "run -a softmax --tune --set train.lr=1e-3": "--set train.lr=1e-3 gives a field that is tuned",
    "run -a softmax --tune --grid primal.rank=1,2": "--grid primal.rank: rows share a grid",
    "run -a softmax --tune --grid train.lr=1e-3,0.001": "the grid has 1 points; give 2 to 64",
    "run -a softmax --tune --grid train.rate=1,2": "train.rate is not possible",
    "run -a softmax --tune --grid train.lr=-1,2": "train.lr=-1: input should be greater than 0",
    "run -a primal -t mqar --over linear.features=1,2": "primal on mqar has no options of 'linear'",
    "run -a primal -t mqar --set mqar.vocabulary=32 --over task.vocabulary=8,9":
        "--set mqar.vocabulary=32 gives a field that is swept",
    "cost -a nystrom --set model.recompute=layer": "no row uses 'model'",
    "cost -a nystrom --level step --set model.recompute=all": "model.recompute=all",
    "cost -a nystrom --level step --set model.dim=3": "dim",
    "check results/row.jsonl --fast": "leave all options but --repeat out",
    "check softmax --repeat 2": "softmax is none",
    "run -a sofmax --json": "'sofmax'",
    # more than there is memory or time for
    f"run -a none*{'9' * 5000}": "a name of over 4096 characters",
    f"study ksvd --steps {10**20}": f"not '{10**20}'",
    "study ksvd --lr 2": "not '2'",
    f"run -a none -t modular-addition --set modular-addition.symbols={2**20}": "of memory",
    f"run -a none --workers {10**20}": "--workers",
    f"run -a none --threads {TOO_MANY}": f"--threads {TOO_MANY} exceeds the",
} | {
    f"study ksvd {option} {size}": reason
    for size, reason in ((2**30, "memory"), (10**20, f"{10**20}"))
    for option in ("--dim", "--tokens")
} | {
    f"run -a none -t {name} --set {name}.{option}={HUGE}": "of memory"
    for name in (*(n for n, task in tasks.items() if issubclass(task, SyntheticTask)), "listops")
    for option in (("train", "dev", "max_len") if name in ("copying", "listops") else ("train",))
} | {
    f"{option} {number}": number
    for option in ("cost -a none --seconds", "cost -a none --timeout", "study ksvd --lr")
    for number in ("inf", "-inf", "nan")
}  # fmt: skip
"""Part of the line that answers a command, which has exit code 2."""

NUMBERS = (
    "", "x", "-1", "nan", "inf", "1e400", str(10**20), "\x1b[31m", "9" * 5000,
)  # fmt: skip
NUMERIC = [
    [*TINY, "-a", "primal", "--set", "primal.rank="],
    [*TINY, "-a", "none", "--set", "model.depth="], [*TINY, "-a", "none", "--set", "train.batch="],
    [*TINY, "-a", "none", "--set", "model.dropout="],
    [*SMOKE, "-a", "none", "--set", "listops.train="], [*TINY, "-a", "none", "--seeds", ""],
    [*TINY, "-a", "none", "--workers", ""], ["cost", "-a", "none", "--dim", ""],
    ["cost", "-a", "none", "--heads", ""], ["cost", "-a", "none", "--lengths", ""],
    ["cost", "-a", "none", "--timeout", ""], ["study", "ksvd", "--tokens", ""],
    ["study", "ksvd", "--dim", ""],
]  # fmt: skip


@pytest.fixture
def rejected(rejected, tmp_path, monkeypatch):
    """As the fixture for all tests, in an empty folder, where the command leaves no file."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*argv: str) -> str:
        line = rejected(*argv)
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
        return line

    return run


@pytest.mark.slow_after(60)
@pytest.mark.parametrize("command", REJECTED)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_file(rejected, command):
    name, *argv = shlex.split(command)
    if name == "run" and not {"--suite", "--budget"} & {*argv}:
        argv = [*(SMOKE if "-t" in argv or "-a" not in argv else TINY)[1:], *argv]
    if "--over" in argv:  # runs differ in their data, too; a line says which are generated
        tasks.find("listops")(**TREES).load("dev")
    assert REJECTED[command] in rejected(name, *argv)


def test_a_folder_for_curves_that_cannot_be_written_is_rejected_before_the_run(call, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = call(*TINY, "-a", "none", "--tensorboard", str(tmp_path / "file" / "curves"))
    assert code == 2 and len(err.splitlines()) == 1 and "give another --tensorboard" in err
    assert not [*tmp_path.rglob("*.json")]


@pytest.mark.slow_after(4)
@pytest.mark.parametrize("argv", NUMERIC, ids=lambda argv: f"{argv[0]} {argv[-2]} {argv[-1]}")
def test_a_bad_number_is_one_line(rejected, argv):
    *argv, last = argv
    for number in NUMBERS:
        rejected(*argv, f"{last}{number}")


@pytest.mark.parametrize(
    "argv",
    [["status"], ["report"], ["cost", "--rerun"], ["study", "spectrum"], [*TINY, "-a", "none"]],
)
def test_a_store_whose_name_is_too_long_is_rejected(call, store, argv):
    store.folder.mkdir()
    store.folder = store.folder / ("x" * 300)
    code, _, err = call(*argv)
    assert code == 2 and len(err.splitlines()) == 1 and "too long" in err


@pytest.mark.parametrize("argv", [[], ["--out", "pages"], ["--json"], ["--baselines"]])
def test_a_report_of_an_empty_store_is_rejected_and_writes_nothing(rejected, store, argv):
    store.folder.mkdir()
    line = rejected("report", *argv)
    assert f"{store.folder} has no record" in line.replace("'", "")
    assert "harness run --attention primal --store" in line


@pytest.mark.parametrize("below", [False, True])
def test_a_report_into_a_file_is_rejected(call, store, tmp_path, below):
    store.write(make_record("softmax"))
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    out = notes / "below" if below else notes
    reason = "Not a directory" if below else f"{notes} is a file"
    line = f"harness: {out} cannot be written ({reason}); give another --out\n"
    assert call("report", "--out", str(out)) == (2, "", line)
    assert notes.read_text() == "mine"


def test_the_backend_of_a_notebook_does_not_reach_matplotlib(output, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    output("list")
    assert os.environ["MPLBACKEND"] == "agg"


def test_seeds_are_numbers_and_ranges_each_once_and_not_too_many():
    texts = {
        "0-4": [0, 1, 2, 3, 4], "7, 2-3 ,0": [7, 2, 3, 0], "0-2,1-3,1": [0, 1, 2, 3], "5-5": [5],
        str(2**32 - 1): [2**32 - 1],
    }  # fmt: skip
    assert {text: seeds_in(text) for text in texts} == texts
    assert len(seeds_in(f"1-{MOST}")) == MOST
    bad = ("4-0", "0-", "-3", "-1-3", "0-1-2", "a-b", "0:4", "1k", f"0-{2**32}", f"0-{MOST}")
    for text in (*bad, "0-999999999999"):
        with pytest.raises(UserError, match=r"seeds .*give "):
            seeds_in(text)
    with pytest.raises(UserError, match=r"^seeds '4-0' ends before it begins; give 0-4$"):
        seeds_in("1,4-0")


@pytest.mark.parametrize("argv", [[], ["data"], ["study"]])
def test_a_command_of_commands_alone_prints_its_help(capsys, argv):
    ends = []
    for more in ([], ["--help"]):
        with pytest.raises(SystemExit) as end:
            main([*argv, *more])
        ends.append((end.value.code, *capsys.readouterr()))
    assert ends[0] == ends[1] == (0, text := ends[0][1], "") and text.startswith("Usage: ")
    for name, summary in studies.names().items() if argv == ["study"] else ():
        assert f"  {name} " in text and summary[:30] in text


@pytest.mark.parametrize(("argv", "command", "reason"), [
    ("run --atention x", " run", "No such option: --atention"), ("run --attention", " run", ""),
    ("study ksvd --dim x", " study ksvd", ""), ("cost --dim 0 -a none", " cost", ""),
    ("run -a none --device cpu --device cpu", " run", "Option --device is given twice"),
    ("data fetch", " data fetch", ""), ("advise", " advise", ""), ("nothing", "", ""),
])  # fmt: skip
def test_a_wrong_option_is_answered_with_the_command_whose_help_has_it(
    rejected, argv, command, reason
):
    line = rejected(*argv.split())
    assert reason in line and line.endswith(f" See: harness{command} --help")


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
    summary = out.split("\nlistops, ")[-1].split("\n\n")[0].splitlines()
    assert max(map(len, summary)) <= 100
    # One row per variant.
    names = ("none", "softmax")
    assert sorted(line.split()[0] for line in summary if line.startswith(names)) == [*names]
    before = [path.read_bytes() for path in paths]

    out = output(*argv)
    assert out.count("(already present; run it again with --rerun)") == 4
    assert [path.read_bytes() for path in paths] == before

    out = output(*TINY, "-a", "none", "--seeds", "2", "--rerun")
    assert "already present" not in out
    changed = [path.read_bytes() != old for path, old in zip(paths, before, strict=True)]
    assert changed == [False, True, False, False]


@pytest.mark.slow
def test_a_recipe_is_printed_and_runs_from_a_file(call, output, store, outcomes, tmp_path):
    code, out, err = call("list", "--budget", "smoke")
    assert (code, err, out.rstrip()) == (0, "", recipes.show("smoke").rstrip())
    file = tmp_path / "mine.toml"
    file.write_text(out.replace("steps = 4", "steps = 3"))
    settings = {"primal.rank": 5, "primal.eta": 0.0, "train.lr": 3e-4, "model.depth": 1}
    texts = (part for name, value in settings.items() for part in ("--set", f"{name}={value}"))
    output("run", "-a", "primal", "--budget", str(file), *TINY[5:], *texts)
    spec = store.read()[0][0].spec
    assert (spec.question.recipe, spec.train.steps, spec.train.lr) == ("mine", 3, 3e-4)
    assert (spec.options["primal"]["rank"], spec.options["primal"]["eta"]) == (5, 0.0)
    assert spec.overrides == {name: settings[name] for name in ("primal.rank", "primal.eta")}
    assert spec.question.name.endswith("recipe mine with model.depth=1, train.lr=0.0003")


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


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_a_run_that_is_not_supported_is_skipped_with_the_remedy(call, store, outcomes):
    code, _, err = call("run", "--budget", "smoke", "-t", "copying", "-a", "nystrom,none")
    (line,) = [line for line in err.splitlines() if "skipped" in line]
    assert code == 1 and "nystrom" in line and "--set copying.causal=false" in line
    assert [record.spec.attention for record in store.read()[0]] == ["none"]
    task = "-t", "selective-copying", "--set", "selective-copying.causal=false"
    code, _, err = call("run", "--budget", "smoke", *task, "-a", "delta")
    assert code == 2 and "delta is causal only" in err
    assert "--set selective-copying.causal=true" in err and len(store.read()[0]) == 1


@pytest.mark.filterwarnings("always")
def test_a_report_leaves_out_what_is_no_record_with_a_warning(call, store, tmp_path):
    bad = store.write(make_record()).with_name("bad.json")
    bad.write_text(json.dumps({"spec": 1}))
    code, _, err = call("report", "--out", str(tmp_path / "pages"))
    assert code == 0 and bad.is_file() and (tmp_path / "pages" / "runs.csv").is_file()
    assert err.startswith(f"harness: warning: {bad} is not a record and is left out: ")
    assert err.splitlines()[0].endswith("; move it away") and err.count("move it away") == 1


def test_only_a_class_is_searched_in_the_current_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "odd.py").write_text("raise SystemExit(0)\n")
    assert call("check", "primal", "--set", "primal.rank=0")[0] == 2 and "" not in sys.path
    code, out, err = call("check", "odd:Odd")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("harness: 'odd:Odd' cannot be loaded")
