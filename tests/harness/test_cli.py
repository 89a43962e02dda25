"""The commands in this process: what they print, what they reject, and their exit codes."""

import inspect
import json
import sys
from importlib import metadata

import pytest
import torch

from harness import budgets
from harness.cli import main
from harness.cli.models import HEAD, paper_of, rows
from tasks.data.sources import CachedTask
from tasks.registry import tasks as task_registry
from tests.certificates import committed
from zoo.variants import variants

TINY = ["run", "--budget", "smoke", "--precision", "fp32"]
for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
    TINY += ["--set", f"listops.{option}"]

BAD = {
    "unknown attention": (["-a", "sofmax"], "did you mean 'softmax'?"),
    "unknown last layer": (["-a", "softmax+primel"], "did you mean 'primal'?"),
    "an empty name": (["-a", "softmax,,primal"], "holds an empty name"),
    "unknown task": (["-a", "softmax", "-t", "listop"], "did you mean 'listops'?"),
    "unknown option": (["-a", "primal", "--set", "primal.rnk=3"], "did you mean 'rank'?"),
    "a file of another kind": (
        ["-a", "none", "-t", "my.txt"],
        "my.txt does not exist; give a .csv",
    ),
    "one beta": (["-a", "none", "--set", "train.betas=0.9"], "train.betas=0.9: two numbers sep"),
    "unknown recipe option": (["-a", "none", "--set", "train.lrr=3"], "did you mean 'lr'?"),
    "two values": (
        ["-a", "primal", "--set", "primal.rank=3", "--set", "primal.rank=4"],
        "--set gives primal.rank two values, 3 and 4; give one",
    ),
    "a class": (["-a", "math:pi"], "cannot be loaded from math:pi"),
    "no value": (["-a", "primal", "--set", "primal.rank"], "not of the form NAME.OPTION=VALUE"),
    "empty value": (["-a", "primal", "--set", "primal.rank="], "not of the form"),
    "no owner": (["-a", "primal", "--set", "rank=3"], "not of the form NAME.OPTION=VALUE"),
    "empty seeds": (["-a", "softmax", "--seeds", ""], "seeds '' are not integers"),
    "empty seeds of a tuned row": (["-a", "softmax", "--tune", "--seeds", ""], "seeds '' are not"),
    "an owner of no run": (
        ["-a", "softmax", "--set", "primal.rank=3"],
        "no run uses 'primal'; give one of listops, model, softmax, train",
    ),
    "no seeds": (["-a", "softmax", "--seeds", "one"], "are not integers; give for example 0,1,2"),
    "a broken list": (["-a", "softmax", "--seeds", "0,,1"], "are not integers"),
    "a negative seed": (["-a", "softmax", "--seeds", "0,-1"], "are not all from 0 to 4294967295"),
    "a huge seed": (["-a", "softmax", "--seeds", str(2**32)], "are not all from 0 to"),
    "unknown device": (["-a", "softmax", "--device", "tpu"], "not one of auto, cpu, cuda"),
    "unknown CLI option": (["-a", "softmax", "--sed", "1"], "No such option: --sed"),
    "value out of range": (["-a", "softmax", "--workers", "-1"], "equal to 0, not '-1'"),
    "no attention": ([], "no --attention is given"),
    "a second budget": (["-a", "none", "--budget", "paper"], "Option --budget is given twice"),
    "a second precision": (["-a", "none", "--precision", "bf16"], "Option --precision is given tw"),
    "missing data": (["-a", "softmax", "-t", "image"], "harness data import image PATH"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_file(
    call, store, tmp_path, monkeypatch, what
):
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[what]
    code, _, err = call(*(TINY[:5] if what == "missing data" else TINY), *arguments)
    (line,) = err.splitlines()
    assert code == 2 and line.startswith("harness: ") and message in line
    assert not [path for path in tmp_path.glob("**/*") if path.is_file()]


@pytest.mark.parametrize("number", ["inf", "-inf", "nan"])
@pytest.mark.parametrize(
    "argv",
    [
        ("cost", "-a", "none", "--seconds"),
        ("cost", "-a", "none", "--timeout"),
        ("study", "ksvd", "--lr"),
    ],
    ids=lambda argv: argv[-1],
)
def test_a_number_that_is_not_finite_is_rejected(call, argv, number):
    code, out, err = call(*argv, number)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and number in err


@pytest.mark.parametrize(
    "argv",
    [["status"], ["report"], ["curves"], ["measure"], ["study", "spectrum"], [*TINY, "-a", "none"]],
)
def test_a_store_whose_name_is_too_long_is_rejected(call, store, argv):
    store.folder.mkdir()
    store.folder = store.folder / ("x" * 300)
    code, _, err = call(*argv)
    assert code == 2 and len(err.splitlines()) == 1 and "too long" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is usable here")
def test_cuda_is_rejected_where_there_is_none(call):
    code, _, err = call(*TINY, "-a", "softmax", "--device", "cuda")
    assert code == 2 and "use --device cpu" in err


def test_no_command_shows_the_help(call):
    code, _, err = call("data")
    assert code == 2 and err.startswith("Usage: ") and len(err.splitlines()) > 5


def test_an_empty_path_is_rejected(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main([*TINY, "-a", "none", "--store", ""])
    assert end.value.code == 2 and "the path is empty" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_run_prints_a_summary_and_its_record_and_is_not_repeated(call, store, unmeasured):
    argv = (*TINY, "-a", "none,softmax", "-a", "none", "--seeds", "0, 2")
    code, out, err = call(*argv)
    records, broken = store.read()
    assert (code, err, broken) == (0, "", [])
    assert [(one.spec.attention, one.spec.seed) for one in records] == [
        ("none", 0), ("none", 2), ("softmax", 0), ("softmax", 2),
    ]  # fmt: skip
    paths = [store.path(record.spec) for record in records]
    assert set(map(str, paths)) <= set(out.splitlines())
    summary = out.split("\nlistops@")[-1].split("\n\n")[0].splitlines()
    assert max(map(len, summary)) <= 100
    # One row per variant, with the number of seeds.
    assert [line.split()[0] for line in summary if "  2  " in line] in (
        ["none", "softmax"], ["softmax", "none"],
    )  # fmt: skip
    before = [path.read_bytes() for path in paths]

    code, out, _ = call(*argv)
    assert code == 0 and out.count("(already present; run it again with --rerun)") == 4
    assert [path.read_bytes() for path in paths] == before

    code, out, _ = call(*argv, "--rerun")
    assert code == 0 and "already present" not in out
    assert all(path.read_bytes() != old for path, old in zip(paths, before, strict=True))


def test_settings_of_variant_recipe_and_model_reach_the_record(call, store, unmeasured):
    given = ("primal.rank=5", "primal.eta=0", "train.lr=3e-4", "train.steps=3", "model.depth=1")
    code, *_ = call(*TINY, "-a", "primal", *(part for one in given for part in ("--set", one)))
    spec = store.read()[0][0].spec
    assert code == 0
    assert (spec.options["primal"]["rank"], spec.options["primal"]["eta"]) == (5, 0.0)
    assert (spec.train.lr, spec.train.steps, spec.model.depth) == (3e-4, 3, 1)
    assert spec.overrides == {
        "primal.rank": 5, "primal.eta": 0.0, "train.lr": 3e-4, "train.steps": 3, "model.depth": 1,
    }  # fmt: skip


def test_a_budget_is_printed_and_runs_from_a_file(call, store, unmeasured, tmp_path):
    code, out, err = call("budgets")
    assert (code, out.split(), err) == (0, budgets.names(), "")
    code, out, err = call("budgets", "--show", "smoke")
    assert (code, err) == (0, "")
    file = tmp_path / "mine.toml"
    file.write_text(out.replace("steps = 4", "steps = 3"))
    trees = TINY[5:]
    code, out, err = call("budgets", "--show", "")
    assert (code, out) == (2, "") and err.startswith("harness: unknown budget ''; known: laptop")
    assert call("run", "-a", "none", "--budget", str(file), *trees)[0] == 0
    spec = store.read()[0][0].spec
    assert (spec.budget, spec.train.steps) == ("mine", 3)


def test_a_run_that_fails_is_listed_with_its_reason_and_exit_code_1(call, store, monkeypatch):
    def fail(plan):
        raise RuntimeError("boom")

    monkeypatch.setattr("harness.runner.measure", fail)
    code, out, _ = call(*TINY, "-a", "softmax")
    assert code == 1 and "failed: RuntimeError: boom" in out.split("listops@")[-1]
    assert store.read()[0][0].status == "failed"


@pytest.mark.filterwarnings("always")
def test_a_cell_that_is_not_supported_is_skipped_with_the_remedy(call, store, unmeasured):
    code, _, err = call("run", "--budget", "smoke", "-t", "copying", "-a", "nystrom,none")
    (line,) = [line for line in err.splitlines() if "skipped" in line]
    assert code == 1 and "nystrom" in line and "--set copying.causal=false" in line
    assert [record.spec.attention for record in store.read()[0]] == ["none"]


@pytest.mark.filterwarnings("always")
def test_a_variant_that_is_causal_only_is_skipped_on_a_bidirectional_task(call, store):
    task = "-t", "selective-copying", "--set", "selective-copying.causal=false"
    code, _, err = call("run", "--budget", "smoke", *task, "-a", "delta")
    assert code == 2 and "delta is causal only" in err
    assert "--set selective-copying.causal=true" in err and not store.read()[0]


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt, 130), (SystemExit, 1)])
def test_an_interrupt_ends_a_run_and_an_exit_in_a_plug_in_fails_it(
    call, store, monkeypatch, error, code
):
    def end(plan):
        raise error

    monkeypatch.setattr("harness.runner.measure", end)
    status = {130: "interrupted", 1: "failed"}[code]
    got, _, err = call(*TINY, "-a", "softmax")
    assert got == code and [record.status for record in store.read()[0]] == [status]
    assert err.strip() == "harness: interrupted" if code == 130 else "Traceback" in err


REFORMER_LIB = variants.find("reformer-lib")

NATIVE = [
    name
    for name, variant in variants.items()
    if not variant.unchecked and not name.endswith("-lib") and name != "none"
]


@pytest.mark.parametrize("name", [name for name in NATIVE if not name.startswith("fla-")])
def test_the_docstring_of_every_native_variant_cites_its_paper(name):
    paper = paper_of(inspect.getdoc(inspect.getmodule(variants.find(name))), name)
    assert paper and paper["authors"] and len(paper["title"]) > 15
    year = int(paper["year"])
    assert 2015 < year < 2030 and 0 <= year % 100 - int(paper["arxiv"][:2]) <= 1


def test_the_first_citation_or_that_of_the_named_line_is_read():
    text = 'Local attention of Child et al., "A\n Title", ICLR 2020, arXiv 1904.10509, and of B.'
    cited = ("Child et al.", "A Title", "ICLR ", "2020", "1904.10509")
    assert paper_of(text, "x").groups() == cited
    table = "Layers.\n\n    x-a  Yang, 2023, arXiv 2312.1\n    x-b  Sun, 2024, arXiv 2307.1\n"
    assert paper_of(table, "x-b").groups() == ("Sun", None, None, "2024", "2307.1")
    assert paper_of("No paper.", "x") is None


def test_the_rows_of_models_state_cost_traits_and_mixing():
    models = {row[0]: dict(zip(HEAD, row, strict=True)) for row in rows(committed())}
    assert models.keys() == {name for name, one in variants.items() if not one.unchecked}
    primal = models["primal"]
    assert primal["paper"] == "Chen et al., 2023, arXiv 2305.19798"
    assert [primal[key] for key in HEAD[3:]] == ["O(N)", "yes", "yes", "yes"]
    costs = [models[name]["cost in N"] for name in ("softmax", "reformer", "none")]
    assert costs == ["O(N²)", "O(N log N)", "O(N)"]
    assert [models[name]["mixes tokens"] for name in ("none", "softmax")] == ["no", "yes"]


def test_data_list_prints_a_line_for_each_data_set(call, data_home):
    code, out, err = call("data", "list")
    assert (code, err) == (0, "")
    cached = {name for name, task in task_registry.items() if issubclass(task, CachedTask)}
    assert {line.split(":")[0] for line in out.splitlines()} == cached
    assert "harness data import image PATH" in out
    assert all(f"listops: {path}\n" in out for path in data_home.glob("listops*.npz"))


def test_a_report_on_a_missing_store_is_rejected(call, store):
    code, _, err = call("report")
    assert code == 2 and err.count("\n") == 1 and str(store.folder) in err
    assert not store.folder.exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("always")
def test_a_report_writes_its_files_and_prints_the_summary(call, store, unmeasured, tmp_path):
    call(*TINY, "-a", "softmax")
    bad = store.folder / "bad.json"
    bad.write_text(json.dumps({"spec": 1}))
    pages = tmp_path / "pages"
    code, out, err = call("report", "--out", str(pages))
    assert code == 0 and err.startswith(
        f"harness: warning: {bad} is not a record and is left out: "
    )
    assert bad.is_file() and (pages / "leaderboard.csv").is_file()
    assert "\nbaselines: " in out


@pytest.mark.parametrize("below", [False, True])
def test_a_report_into_a_file_is_rejected(call, store, tmp_path, below):
    store.folder.mkdir()
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    out = notes / "below" if below else notes
    reason = "Not a directory" if below else f"{notes} is a file"
    line = f"harness: {out} cannot be written ({reason}); give another --out\n"
    assert call("report", "--out", str(out)) == (2, "", line)
    assert notes.read_text() == "mine"


@pytest.mark.filterwarnings("always")
def test_costs_are_measured_again_and_a_record_of_another_machine_is_left(call, store, unmeasured):
    call(*TINY, "-a", "softmax,none")
    (other,) = (record for record in store.read()[0] if record.spec.attention == "none")
    threads = other.environment.threads + 999
    environment = other.environment.model_copy(update={"threads": threads})
    path = store.write(other.model_copy(update={"environment": environment}))
    before = path.read_bytes()
    code, out, err = call("measure")
    assert code == 1 and "softmax" in out and "none" not in out
    assert err.startswith(f"harness: warning: {path} is left unchanged: ") and err.count("\n") == 1
    assert path.read_bytes() == before


def test_a_store_without_finished_runs_has_nothing_to_measure(call):
    code, _, err = call("measure")
    assert code == 2 and "has no finished run" in err


def test_the_allocator_is_configured_before_anything_is_measured(call, unmeasured, monkeypatch):
    order = []
    monkeypatch.setattr("harness.environment.keep_freed_memory", lambda: order.append("configured"))
    for module in ("runner", "remeasure"):
        measure = f"harness.{module}.measure"
        monkeypatch.setattr(measure, lambda plan: order.append("measured") or unmeasured)
    assert call(*TINY, "-a", "none")[0] == call("measure")[0] == 0
    assert order == ["configured", "measured"] * 2


def test_the_version_is_that_of_the_installed_package(call):
    assert call("--version")[:2] == (0, f"harness {metadata.version('attention-harness')}\n")


def test_only_a_class_is_searched_in_the_current_folder(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    (tmp_path / "odd.py").write_text("raise SystemExit(0)\n")
    code, out, err = call("check", "primal", "--set", "primal.rank=0")
    assert (code, out, err) == (2, "", "harness: primal.rank=0 must be at least 1; raise it\n")
    assert "" not in sys.path
    code, out, err = call("check", "odd:Odd")
    assert (code, out) == (2, "") and err.startswith("harness: 'odd:Odd' cannot be loaded")
    assert err.count("\n") == 1
