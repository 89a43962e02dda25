"""`harness reproduce`: its cells, its records and pages, and what it rejects."""

import csv
import json

import pytest

from harness.cli.paper_tables import ARENA, SERIES, TABLES
from harness.provenance import options_of
from harness.records.store import CostStore
from harness.reproduce import D4RL, ENVIRONMENTS, cells, trajectories_of
from reports.papers import published, published_on
from tasks.registry import tasks
from tasks.uea.series import SeriesTask
from tests.trajectories import PENDULUM, record_short

SMALL = ("reproduce", "primal", "--budget", "smoke", "--precision", "fp32", "--seconds", "0")


def paper_cells():
    rows, names = TABLES["3"].rows.split(","), ARENA.split(",")
    return cells(rows, names, budget="paper", device="cpu", precision="fp32")


def test_the_cells_have_the_shapes_and_options_of_the_published_runs():
    made = {(one.task.partition("@")[0], one.attention): one.spec for one in paper_cells()}
    shapes = {task: (made[task, "primal"].batch, made[task, "primal"].length) for task, _ in made}
    # Retrieval has 32 examples of two documents.
    assert shapes == {
        "listops": (32, 2000), "text": (32, 4000), "retrieval": (64, 4000),
        "image": (256, 1024), "pathfinder": (256, 1024),
    }  # fmt: skip
    ranks = {task: options_of(made[task, "primal"])["primal"]["rank"] for task in shapes}
    assert ranks == {"listops": 20, "text": 20, "retrieval": 30, "image": 30, "pathfinder": 30}
    assert options_of(made["text", "nystrom"])["nystrom"]["landmarks"] == 64
    assert options_of(made["text", "softmax"])["softmax"]["backend"] == "naive"
    assert options_of(made["text", "sdpa"])["softmax"]["backend"] == "sdpa"
    model = made["text", "primal"].model
    assert model and (model.depth, model.dim, model.heads, model.dropout) == (2, 64, 2, 0.1)


def test_table_1_has_every_time_series():
    names = [name for name, task in tasks.items() if issubclass(task, SeriesTask)]
    assert SERIES.split(",") == sorted(names)


def test_every_published_figure_has_a_cell():
    for one in paper_cells():
        units = {*published(one.task, one.attention)} - {"%"}
        assert units == (set() if one.attention == "sdpa" else {"s/1K steps", "GB"})


@pytest.mark.parametrize("table", ["1", "2"])
def test_every_published_accuracy_has_a_run(table):
    wanted = {
        (f"{task}@{tasks.find(task).version}", attention)
        for task in TABLES[table].tasks.split(",")
        for attention in TABLES[table].rows.split(",")
    }
    printed = {
        (number.task, number.attention) for key, _ in wanted for number in published_on(key, "%")
    }
    assert printed == wanted


def test_cells_of_the_same_shape_are_one_measurement():
    by_task = {one.task: one.spec.id for one in paper_cells() if one.attention == "primal"}
    assert by_task["image@1"] == by_task["pathfinder@2"]
    assert len({*by_task.values()}) == 4


def test_the_table_is_measured_once_and_written_beside_the_published_figures(call, store, outcomes):
    arguments = (*SMALL, "-a", "primal", "--task", "retrieval")
    code, out, err = call(*arguments)
    assert code == 0, err
    records, broken = CostStore.within(store.folder).read()
    # Primal, softmax by its formula and SDPA softmax.
    assert len(records) == 3 and not broken and {one.status for one in records} == {"ok"}
    lines = [*csv.DictReader((store.folder / "table3.csv").read_text().splitlines())]
    assert [line["attention"] for line in lines] == ["softmax", "sdpa", "primal"]
    for line in lines:
        assert float(line["seconds_per_1k_steps_median"]) > 0
    page = (store.folder / "table3.md").read_text()
    assert "## Where and why they differ" in page and "budget `smoke`" in page
    assert "softmax (naive)" in out
    code, out, _ = call(*arguments)
    assert code == 0 and out.count("(already present)") == 3
    code, out, _ = call(*arguments, "--json")
    assert [row["attention"] for row in json.loads(out)["rows"]] == ["softmax", "sdpa", "primal"]
    assert (store.folder / "table3.md").read_text() == page


def test_a_cell_that_takes_too_long_is_a_result_with_its_reason(call, store, outcomes):
    outcomes["softmax"] = "timeout"
    options = ("--budget", "paper", "--task", "text", "-a", "softmax")
    code, out, err = call("reproduce", "primal", *options)
    assert code == 0, err
    page = (store.folder / "table3.md").read_text()
    assert "timeout: a reason" in page and "694.8" not in out
    assert "695" in out and "timeout" in out


@pytest.fixture
def budget(tmp_path):
    """A budget file of runs that take a tenth of a second."""
    file = tmp_path / "tiny.toml"
    file.write_text(
        """
        [model]
        dim = 8
        feed_forward = 8
        head = 8
        depth = 1
        [train]
        batch = 8
        steps = 2
        warmup = 0
        evaluations = 1
        lr = 1e-3
        betas = [0.9, 0.999]
        cycle_momentum = false
        eps = 1e-8
        weight_decay = 0.0
        [tasks.listops]
        options = { min_len = 2, max_len = 24, train = 64, dev = 16, test = 18 }
        [tasks.image]
        """
    )
    return str(file)


@pytest.mark.slow
def test_accuracies_are_shown_beside_the_published_ones_and_missing_data_are_named(
    call, store, budget, unmeasured
):
    arguments = ("reproduce", "primal", "--table", "2", "--budget", budget, "-a", "primal,softmax")
    code, out, err = call(*arguments, "--task", "image,listops", "--seeds", "0,1")
    assert code == 0, err
    assert "missing data of image: run 'harness data fetch image'" in " ".join(out.split())
    page = (store.folder / "table2.md").read_text()
    assert "## Missing data\n\n- image: run" in page and "Published numbers belong to" in page
    lines = [*csv.DictReader((store.folder / "table2.csv").read_text().splitlines())]
    found = [(line["data_set"], line["attention"], line["seeds"]) for line in lines]
    assert found == [
        ("listops", "primal", "0 1"), ("listops", "softmax", "0 1"),
        ("image", "primal", ""), ("image", "softmax", ""),
    ]  # fmt: skip
    by_id = {(r.spec.attention, r.spec.seed): r.final.score for r in store.read()[0]}
    mean = 0.5 * (by_id["primal", 0] + by_id["primal", 1])
    assert float(lines[0]["value"]) == pytest.approx(mean)
    assert lines[2]["missing_data"].startswith("run 'harness data fetch image'")
    code, out, _ = call(*arguments, "--task", "listops", "--seeds", "0,1", "--json")
    assert [row["attention"] for row in json.loads(out)["rows"]] == ["primal", "softmax"]
    assert len(store.read()[0]) == 4 and (store.folder / "table2.png").exists()


def test_data_sets_of_d4rl_are_files_with_an_environment_and_the_published_rank(tmp_path):
    # Those of the budget, 96, are left to it.
    ranks = {"walker2d-medium-replay": (), "hopper-medium-replay": ("primal.rank=64",)}
    for name in ranks:
        (tmp_path / f"{name.replace('-', '_')}-v2.hdf5").touch()
    found = {one.name: one.settings for one in trajectories_of(D4RL, tmp_path) if not one.missing}
    assert found == {
        name: (
            f"control.path={tmp_path / name.replace('-', '_')}-v2.hdf5",
            f"control.env={name.partition('-')[0].capitalize()}-v5",
            *rank,
        )
        for name, rank in ranks.items()
    }


def test_a_table_of_returns_is_made_of_the_files_that_are_here(
    call, store, tmp_path, unmeasured, monkeypatch
):
    pytest.importorskip("mujoco")
    monkeypatch.setitem(ENVIRONMENTS, "hopper", PENDULUM)
    record_short(tmp_path / "hopper_medium-v2.hdf5")
    code, _, err = call(
        "reproduce", "primal", "--table", "4", "--data", str(tmp_path), "--budget", "smoke",
        "-a", "softmax", "--task", "hopper-medium,hopper-medium-expert",
    )  # fmt: skip
    assert code == 0, err
    page = (store.folder / "table4.md").read_text()
    assert "| hopper-medium | softmax | 1 | " in page
    assert (
        "- hopper-medium-expert: give --data with the folder of hopper_medium_expert-v2.hdf5"
        in page
    )


@pytest.mark.slow
def test_the_figure_is_made_of_the_spectra_of_trained_models(call, store, budget, unmeasured):
    code, _, err = call(
        "reproduce", "primal", "--table", "figure", "--budget", budget, "--task", "listops",
        "-a", "softmax,primal",
    )  # fmt: skip
    assert code == 0, err
    with (store.folder / "spectrum.csv").open() as lines:
        assert {line["attention"] for line in csv.DictReader(lines)} == {"softmax", "primal"}
    assert (store.folder / "spectrum.md").exists() and (store.folder / "spectrum.png").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("primal", "--table", "1"), "the data of uea-ethanol-concentration, uea-face"),
        (("primal", "--table", "2", "--task", "image"), "are missing; run 'harness data fetch"),
        (("primal", "--table", "figure"), "the data of image are missing"),
        (("primal", "--table", "2", "--seconds", "3"), "--seconds is not an option of table 2"),
        (
            ("primal", "--seeds", "1"),
            "--seeds is not an option of table 3, which has --seconds, --timeout",
        ),
        (("primal", "--table", "2", "--task", "listop"), "did you mean 'listops'?"),
        (("primal", "--table", "2", "--seeds", "x"), "seeds 'x' are not integers"),
        (
            ("primal", "--table", "4"),
            f"the data of {', '.join(D4RL)} are missing; for halfcheetah-medium-expert give "
            "--data with the folder of halfcheetah_medium_expert-v2",
        ),
        (("primal", "--table", "4", "--task", "hopper"), "unknown data set 'hopper'"),
        (("primal", "--table", "2", "--data", "."), "--data is not an option of table 2"),
        (("primal", "--table", "7"), "unknown table '7'"),
        (("primmal",), "did you mean 'primal'?"),
        (("primal", "--task", "listop"), "did you mean 'listops'?"),
        (("primal", "-a", "linformr"), "did you mean 'linformer'?"),
        (("primal", "--budget", "papr"), "did you mean 'paper'?"),
        (("primal", "--task", "copying"), "unknown column of table 3 'copying'"),
        (("primal", "--table", "1", "--task", "listops"), "unknown column of table 1 'listops'"),
        (("primal", "--table", "figure", "--task", "copying"), "no recipe for task 'copying'"),
        (("primal", "--table", "4", "--data", "absent"), "--data absent is no folder; give the"),
        (("primal", "--table", "2", "--threads", "999"), "--threads 999 exceeds the"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, message, call, store):
    code, _, err = call("reproduce", *arguments)
    assert code == 2 and message in err and err.count("\n") == 1
    assert not store.folder.exists()
