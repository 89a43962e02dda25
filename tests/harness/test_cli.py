"""The command line in this process: what it refuses, and what it says."""

import errno
import json
from importlib import metadata

import pytest
import torch

from harness import budgets, run
from harness.cli import main
from harness.records.store import Store
from tasks.registry import tasks
from tasks.data.sources import CachedTask
from zoo.variants import variants

TREES = ["min_len=2", "max_len=24", "train=64", "dev=16", "test=18"]
TINY = ["run", "--budget", "smoke", "--precision", "fp32"]
for tree in TREES:
    TINY += ["--set", f"listops.{tree}"]


BAD = {
    "unknown attention": (["-a", "sofmax"], "did you mean 'softmax'?"),
    "unknown last layer": (["-a", "softmax+primel"], "did you mean 'primal'?"),
    "three variants": (["-a", "softmax+primal+softmax"], "names 3 variants"),
    "half a composition": (
        ["-a", "primal+"],
        "attention 'primal+' names 1 variants, not one or two; give A",
    ),
    "an empty name": (["-a", "softmax,,primal"], "holds an empty name"),
    "unknown among known": (["-a", "softmax,sofmax"], "did you mean 'softmax'?"),
    "unknown task": (["-a", "softmax", "-t", "listop"], "did you mean 'listops'?"),
    "unknown budget": (["-a", "softmax", "--budget", "smoek"], "did you mean 'smoke'?"),
    "unknown option": (["-a", "primal", "--set", "primal.rnk=3"], "did you mean 'rank'?"),
    "unknown task option": (["-a", "primal", "--set", "listops.maxlen=3"], "did you mean"),
    "ill-typed option": (["-a", "primal", "--set", "primal.rank=many"], "not of type int"),
    "out of range": (["-a", "primal", "--set", "primal.rank=-1"], "rank=-1"),
    "a negative weight": (["-a", "primal", "--set", "primal.eta=-1"], "primal.eta=-1.0 must be"),
    "two values": (
        ["-a", "primal", "--set", "primal.rank=3", "--set", "primal.rank=4"],
        "--set gives primal.rank two values, 3 and 4; give one",
    ),
    "an option of none": (["-a", "none", "--set", "none.x=1"], "'x'; there is none at all"),
    "a class": (["-a", "zoo.variants.softmax:Softmax"], "is no registered name; give its class an"),
    "an astronomical number": (
        ["-a", "primal", "--set", f"primal.rank={10**20}"],
        "not of type int",
    ),
    "a number for no memory": (["-a", "linformer", "--set", f"linformer.rank={2**62}"], "be built"),
    "no choice": (["-a", "softmax", "--set", "softmax.backend=fast"], "not one of auto, sdpa"),
    "no value": (["-a", "primal", "--set", "primal.rank"], "not of the form NAME.OPTION=VALUE"),
    "empty value": (["-a", "primal", "--set", "primal.rank="], "not of the form"),
    "no owner": (["-a", "primal", "--set", "rank=3"], "not of the form NAME.OPTION=VALUE"),
    "an owner outside": (
        ["-a", "softmax", "--set", "primal.rank=3"],
        "takes no part; those that do: listops, softmax",
    ),
    "no seeds": (["-a", "softmax", "--seeds", "one"], "not whole numbers; give for example 0,1,2"),
    "a broken list": (["-a", "softmax", "--seeds", "0,,1"], "not whole numbers"),
    "a negative seed": (["-a", "softmax", "--seeds", "0,-1"], "from 0 to 2**32 - 1"),
    "a huge seed": (["-a", "softmax", "--seeds", str(2**32)], "from 0 to 2**32 - 1"),
    "unknown device": (["-a", "softmax", "--device", "tpu"], "not one of auto, cpu, cuda"),
    "unknown precision": (["-a", "softmax", "--precision", "fp8"], "not one of auto, bf16, fp32"),
    "unknown CLI option": (["-a", "softmax", "--sed", "1"], "No such option: --sed"),
    "no attention": ([], "Missing option '--attention'"),
    "a batch too large": (
        ["-a", "softmax", "--set", "listops.train=3"],
        "fewer than a batch of 4",
    ),
    "missing data": (["-a", "softmax", "-t", "image"], "harness data import image PATH"),
}
WITHOUT_TREES = {"missing data", "a batch too large"}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_leaves_no_file(call, store, what):
    given, message = BAD[what]
    base = TINY[:5] if what in WITHOUT_TREES else TINY
    code, _, err = call(*base, *given)
    assert code == 2
    lines = err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("harness: ")
    assert message in lines[0]
    assert [path for path in store.folder.glob("**/*") if path.is_file()] == []


def test_what_a_later_cell_misses_is_refused_before_the_first_one_runs(call, store, unmeasured):
    code, _, err = call(*TINY, "-a", "softmax", "-t", "listops,image")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "harness data import image PATH" in err
    assert not store.folder.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is usable here")
def test_cuda_is_refused_where_there_is_none(call, store):
    code, _, err = call(*TINY, "-a", "softmax", "--device", "cuda")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "torch sees no CUDA device; use --device cpu" in err
    assert not store.folder.exists()


def test_a_store_that_cannot_be_one_is_refused_before_anything_runs(call, store, monkeypatch):
    monkeypatch.setattr("harness.grid.run", lambda *_: pytest.fail("it ran"))
    store.folder.write_text("a file")
    code, _, err = call(*TINY, "-a", "softmax")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "cannot be written" in err
    assert store.folder.read_text() == "a file"


@pytest.mark.parametrize("argv", [[], ["data"]])
def test_no_command_shows_the_help(capsys, argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("Usage: ")
    assert len(err.splitlines()) > 5


def test_a_run_prints_a_table_and_the_place_of_its_record_and_is_not_repeated(call, store):
    code, out, err = call(*TINY, "-a", "softmax,softmax+primal")
    assert (code, err) == (0, "")
    records, broken = store.read()
    assert [record.spec.attention for record in records] == ["softmax+primal", "softmax"]
    assert not broken
    for record in records:
        assert str(store.path(record.spec)) in out.splitlines()
        row = next(
            line for line in out.splitlines()
            if line.split()[:2] == [record.spec.attention, record.spec.task.key]
        )  # fmt: skip
        assert f" {100 * record.final.test_accuracy:.1f} " in row
        assert f" {record.cost.own.parameters:,} " in row
        assert f" {record.cost.time_ratio.median:.2f} " in row
    before = [store.path(record.spec).read_bytes() for record in records]

    code, out, _ = call(*TINY, "-a", "softmax,softmax+primal")
    assert code == 0
    assert out.count("was there; --again to redo") == 2
    assert "train" not in out.split("attention")[0]
    assert [store.path(record.spec).read_bytes() for record in records] == before


def test_freed_memory_is_kept_before_anything_is_measured(call, store, unmeasured, monkeypatch):
    order = []
    monkeypatch.setattr("harness.environment.keep_freed_memory", lambda: order.append("kept"))
    monkeypatch.setattr("harness.run.measure", lambda *_: order.append("measured") or unmeasured)
    assert call(*TINY, "-a", "softmax")[0] == 0
    assert call("measure")[0] == 0
    assert order == ["kept", "measured"] * 2


def test_again_runs_a_finished_cell_anew(call, store, unmeasured):
    call(*TINY, "-a", "softmax")
    first = store.read()[0][0]
    code, out, _ = call(*TINY, "-a", "softmax", "--again")
    assert code == 0
    assert "was there" not in out
    assert store.read()[0][0].final.seconds != first.final.seconds


def test_every_seed_is_a_run(call, store, unmeasured):
    assert call(*TINY, "-a", "softmax", "--seeds", "0, 2")[0] == 0
    assert sorted(record.spec.seed for record in store.read()[0]) == [0, 2]


def test_set_reaches_the_record(call, store, unmeasured):
    call(*TINY, "-a", "primal", "--set", "primal.rank=5", "--set", "primal.eta=0")
    options = store.read()[0][0].spec.options["primal"]
    assert (options["rank"], options["eta"]) == (5, 0.0)


def test_a_run_that_fails_is_a_row_with_its_reason_and_exit_code_1(call, store, monkeypatch):
    def fail(*_):
        raise RuntimeError("boom")

    monkeypatch.setattr("harness.run.measure", fail)
    code, out, _ = call(*TINY, "-a", "softmax")
    assert code == 1
    assert "failed: RuntimeError: boom" in out
    assert store.read()[0][0].status == "failed"


def test_list_names_every_variant_task_and_budget(call):
    code, out, err = call("list")
    assert (code, err) == (0, "")
    words = set(out.replace(",", " ").split())
    versions = {f"{name}@{task.version}" for name, task in tasks.items()}
    assert words >= {*variants.names(), *versions, *budgets.names()}
    for option in ("rank=30", "landmarks=64", "backend=auto", "max_len=2000"):
        assert option in words


class Unready(tasks.find("majority")):
    def __init__(self):
        raise OSError("no disk")


@pytest.mark.filterwarnings("always")
def test_a_task_that_cannot_be_made_ends_no_listing_and_is_refused_by_name(call, monkeypatch):
    monkeypatch.setitem(tasks._own, "unready", Unready)
    code, out, err = call("list")
    assert code == 0
    assert "\nselective-copying@" in out and "unready" not in out
    assert "task 'unready' cannot be built (OSError: no disk)" in err
    code, _, err = call("run", "-a", "none", "-t", "unready")
    assert code == 2
    assert err == (
        "harness: task 'unready' cannot be built (OSError: no disk); mend it, or its options\n"
    )


def test_data_list_says_a_line_for_each_data_set(call, data_home):
    code, out, err = call("data", "list")
    assert (code, err) == (0, "")
    kept = {name for name, task in tasks.items() if issubclass(task, CachedTask)}
    assert {line.split(":")[0] for line in out.splitlines()} == kept
    image = next(line for line in out.splitlines() if line.startswith("image"))
    assert "harness data import image PATH" in image
    for path in data_home.glob("listops*.npz"):
        assert f"listops: {path}" in out.splitlines()


def test_importing_what_does_not_exist_is_refused(call, tmp_path):
    code, _, err = call("data", "import", "image", str(tmp_path / "none"))
    assert (code, len(err.splitlines())) == (2, 1)
    assert "does not exist" in err


def test_a_report_on_a_missing_folder_is_refused(call, store):
    code, _, err = call("report")
    assert (code, len(err.splitlines())) == (2, 1)
    assert str(store.folder) in err
    assert not store.folder.exists()


def test_a_report_names_a_broken_record_and_leaves_it(call, store, unmeasured, tmp_path):
    call(*TINY, "-a", "softmax")
    bad = store.folder / "bad.json"
    bad.write_text(json.dumps({"spec": 1}))
    code, out, err = call("report", "--out", str(tmp_path / "pages"))
    assert code == 0
    assert err.startswith(f"warning: {bad} is not a record and is left out: ")
    assert len(err.splitlines()) == 1
    pages = [tmp_path / "pages" / name for name in ("leaderboard.md", "leaderboard.csv")]
    assert all(page.stat().st_size > 0 and str(page) in out.splitlines() for page in pages)
    assert "softmax" in pages[0].read_text()
    assert bad.read_text() == '{"spec": 1}'


def test_measuring_names_a_broken_record_and_goes_on_with_the_others(call, store, unmeasured):
    call(*TINY, "-a", "softmax")
    (store.folder / "bad.json").write_text("{")
    code, out, err = call("measure")
    assert code == 0 and "softmax" in out
    assert err.startswith(f"warning: {store.folder / 'bad.json'} is not a record and is left out")


def test_a_broken_record_in_the_way_of_a_run_is_refused(call, store, unmeasured):
    call(*TINY, "-a", "softmax")
    path = next(store.folder.glob("*.json"))
    path.write_text("{")
    code, _, err = call(*TINY, "-a", "softmax")
    assert (code, len(err.splitlines())) == (2, 1)
    assert str(path) in err
    assert path.read_text() == "{"


def test_an_interrupt_is_exit_code_130_and_one_line(call, store, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("harness.run.measure", interrupt)
    code, _, err = call(*TINY, "-a", "softmax,primal")
    assert code == 130
    assert err.strip() == "harness: interrupted"
    assert [record.status for record in Store(store.folder).read()[0]] == ["interrupted"]


@pytest.mark.parametrize("page", ["missing.md", "unmarked.md"])
def test_a_page_that_cannot_be_renewed_is_refused_before_anything_is_written(
    call, store, unmeasured, tmp_path, page
):
    call("run", "-a", "softmax", "--budget", "smoke")
    (tmp_path / "unmarked.md").write_text("no marks\n")
    pages = tmp_path / "pages"
    code, _, err = call("report", "--out", str(pages), "--readme", str(tmp_path / page))
    assert code == 2
    expected = {
        "missing.md": "cannot be read (No such file or directory); mend it",
        "unmarked.md": "cannot be renewed: the page lacks the lines <!-- leaderboard --> and "
        "<!-- /leaderboard -->; add them",
    }[page]
    assert err == f"harness: --readme {tmp_path / page} {expected}\n"
    assert not pages.exists()


def test_a_page_that_takes_nothing_is_named(call, store, monkeypatch, tmp_path):
    store.folder.mkdir()
    page = tmp_path / "page.md"
    page.write_text("<!-- leaderboard -->\n<!-- /leaderboard -->\n")

    def full(path, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("harness.records.files.place_all", lambda folder, contents: [])
    monkeypatch.setattr("harness.records.files.place", full)
    code, _, err = call("report", "--readme", str(page))
    expected = f"harness: --readme {page} cannot be written (No space left on device); mend it\n"
    assert (code, err) == (2, expected)


def test_a_name_may_be_given_by_itself_or_between_commas(call, store, unmeasured):
    argv = ("run", "--budget", "smoke", "-t", "majority", "-t", "parity,majority")
    assert call(*argv, "-a", "none,softmax", "-a", "none", "-a", "linear")[0] == 0
    ran = [(record.spec.task.name, record.spec.attention) for record in store.read()[0]]
    names = ("linear", "none", "softmax")
    assert ran == [(task, name) for task in ("majority", "parity") for name in names]


def test_a_run_without_softmax_beside_it_says_why_it_has_no_ratio(
    call, store, unmeasured, monkeypatch
):
    absent = {"softmax": None, "time_ratio": None, "inference_ratio": None}
    alone = unmeasured.model_copy(update=absent)
    monkeypatch.setattr("harness.run.measure", lambda spec, task, train: alone)
    code, out, _ = call("run", "-a", "primal", "--budget", "smoke")
    assert code == 0 and out.count("softmax: out of memory") == 2


def test_a_report_into_a_file_is_refused(call, store, tmp_path):
    store.folder.mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    page = tmp_path / "notes.txt"
    code, out, err = call("report", "--out", str(page))
    line = f"harness: {page} cannot be written ({page} is a file); give another --out\n"
    assert (code, out, err) == (2, "", line)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_report_into_a_folder_that_cannot_be_written_is_refused(call, store, tmp_path):
    store.folder.mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    below = tmp_path / "notes.txt" / "below"
    line = f"harness: {below} cannot be written (Not a directory); give another --out\n"
    assert call("report", "--out", str(below)) == (2, "", line)


def test_a_page_is_renewed(call, store, unmeasured, tmp_path):
    call("run", "-a", "softmax", "--budget", "smoke")
    page = tmp_path / "page.md"
    page.write_text("top\n<!-- leaderboard -->\n<!-- /leaderboard -->\nbottom\n")
    code, out, _ = call("report", "--readme", str(page))
    assert code == 0 and str(page) in out
    assert "| softmax |" in page.read_text() and page.read_text().endswith("bottom\n")


def test_costs_are_measured_anew_and_shown(call, store, unmeasured):
    call("run", "-a", "softmax,primal", "--budget", "smoke")
    code, out, _ = call("measure")
    assert code == 0 and out.count("s/1K steps") == 2


def test_what_cannot_be_measured_here_is_left_with_a_warning_and_the_rest_is_measured(
    call, store, unmeasured
):
    call(*TINY, "-a", "softmax,none")
    (alien,) = (record for record in store.read()[0] if record.spec.attention == "none")
    threads = alien.environment.threads + 1
    environment = alien.environment.model_copy(update={"threads": threads})
    store.write(alien.model_copy(update={"environment": environment}))
    before = store.path(alien.spec).read_bytes()
    code, out, err = call("measure")
    assert code == 1
    assert "softmax" in out and "none" not in out
    (line,) = err.splitlines()
    assert line.startswith(f"warning: {store.path(alien.spec)} is left as it was: ")
    assert store.path(alien.spec).read_bytes() == before


def test_a_measurement_that_fails_leaves_its_record_and_the_rest_is_measured(
    call, store, unmeasured, monkeypatch
):
    call(*TINY, "-a", "softmax,none")
    real = run.measure_anew

    def fail_for_none(record, folder):
        if record.spec.attention == "none":
            raise MemoryError("no room")
        return real(record, folder)

    monkeypatch.setattr(run, "measure_anew", fail_for_none)
    code, out, err = call("measure")
    assert code == 1 and "softmax" in out
    assert err.endswith(" is left as it was: MemoryError: no room\n") and err.count("\n") == 1


def test_an_empty_store_has_nothing_to_measure(call):
    code, _, err = call("measure")
    assert code == 2 and "holds no finished run" in err


def test_a_model_too_large_for_the_machine_is_a_record_and_no_traceback(call, store):
    code, _, err = call(*TINY, "-a", "primal", "--set", "primal.rank=10000000000000")
    assert code == 1
    assert "Traceback" not in err
    (path,) = store.folder.glob("*.json")
    assert '"status": "out_of_memory"' in path.read_text()


def test_the_version_is_that_of_the_installed_package(call):
    assert call("--version")[:2] == (0, f"harness {metadata.version('attention-harness')}\n")
