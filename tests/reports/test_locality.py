"""Locality audits, made from records alone."""

import pytest
from matplotlib.figure import Figure
from reports.baselines import QUIET

from reports import baselines, locality
from reports.audits import audits
from reports.locality import figure, files, markdown


def window(tokens):
    return {"local": {"window": tokens}}


@pytest.fixture
def runs(record):
    """The runs of one audit: windows of 8 and 32, the same blocks, and both ends."""

    def local(tokens, accuracy, **more):
        return record("local", accuracy=accuracy, options=window(tokens), **more)

    def shuffled(block, accuracy):
        made = record("softmax", accuracy=accuracy, key=f"listops@1, blocks of {block} shuffled")
        task = made.spec.task.model_copy(update={"block": block})
        return made.model_copy(update={"spec": made.spec.model_copy(update={"task": task})})

    return [
        record("softmax", accuracy=0.37), record("none", accuracy=0.17), local(8, 0.2),
        local(32, 0.3), shuffled(8, 0.21), shuffled(32, 0.36), record("performer", accuracy=0.9),
    ]  # fmt: skip


def test_a_table_has_a_row_a_window_and_the_whole_at_its_end(runs):
    text = markdown(audits(runs))
    rows = [
        [cell.split()[0] if cell.split() else "" for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ][2:]
    assert rows == [
        ["0", "17.0", "–"], ["8", "20.0", "21.0"], ["32", "30.0", "36.0"], ["all", "37.0", "37.0"],
        ["*majority*", "*17.0*", ""], ["*chance*", "*10.0*", ""],
    ]  # fmt: skip
    assert "90.0" not in text
    assert "## listops@1, budget `paper`, cuda: NVIDIA H100\n" in text


def test_seeds_of_a_window_are_one_accuracy(runs, record):
    other = record("local", accuracy=0.4, seed=1, options=window(32))
    (audit,) = audits([*runs, other])
    found = audit.seen[0].rows[32].accuracy
    assert found.mean == pytest.approx(0.35)
    assert found.over == "seeds"


def test_a_record_that_is_there_twice_is_one_seed(runs, record):
    later = record("local", accuracy=0.31, options=window(32), started="2027")
    (audit,) = audits([*runs, later, runs[3]])
    assert audit.seen[0].rows[32].accuracy.mean == pytest.approx(0.31)
    assert len(audit.seen[0].rows[32].runs) == 1


def test_machines_tasks_and_recipes_are_audits_of_their_own(runs, record):
    def windows(**more):
        return [record("local", options=window(w), **more) for w in (8, 32)]

    others = [
        *windows(machine="NVIDIA H200"), *windows(task="text", key="text@1"),
        *windows(train={"steps": 7}), *windows(device="cpu"), *windows(device="cpu", threads=4),
    ]  # fmt: skip
    assert len(audits([*runs, *others])) == 6


def test_versions_are_audits_of_their_own(runs, record):
    others = [record("local", key="listops@2", options=window(w)) for w in (8, 32)]
    assert [one.setting["task.key"] for one in audits([*runs, *others])] == [
        "listops@1",
        "listops@2",
    ]


def test_a_run_that_did_not_finish_is_a_cell_with_its_reason(runs, record):
    failed = record("local", status="diverged", reason="loss is nan", options=window(128))
    found = audits([*runs, failed])
    assert "| 128 | diverged: loss is nan | – |\n" in markdown(found)
    svg = figure(found)["locality.svg"].decode()
    assert "<!-- Not shown – 128 tokens: diverged: loss is nan -->" in svg


def test_an_audit_of_which_no_run_finished_is_a_page_of_reasons(record):
    given = [
        record(name, status="failed", reason="boom", options=options)
        for name, options in (("softmax", None), ("none", None), ("local", window(8)))
    ]
    page = files(given)["locality.md"].decode()
    assert [line for line in page.splitlines() if "boom" in line] == [
        "| 0 | failed: boom |", "| 8 | failed: boom |", "| all | failed: boom |",
    ]  # fmt: skip


def test_one_seed_and_unfinished_seeds_are_marked_as_on_the_leaderboard(runs, record):
    page = markdown(audits(runs))
    assert "| 8 | 20.0 [18.3, 21.8]† | 21.0 [19.3, 22.8]† |\n" in page
    assert page.endswith("\n\n† One seed: the interval is over test examples.\n")
    more = [record("local", accuracy=0.3, seed=1, options=window(32))]
    more.append(record("local", status="failed", reason="no", seed=2, options=window(32)))
    page = markdown(audits([*runs, *more]))
    assert "| 32 | 30.0 [30.0, 30.0]‡; seed 2 failed: no | 36.0" in page
    assert "‡ Some runs did not finish." in page


def test_floors_are_those_of_documents_as_they_are(runs, record):
    later = {"baselines": {"chance": 0.1, "majority": 0.99}, "started": "2027"}
    (audit,) = audits(run.model_copy(update=later) if run.spec.task.block else run for run in runs)
    assert dict(audit.baselines) == runs[0].baselines


def test_the_model_that_mixes_no_tokens_has_a_row_where_no_window_was_tried(runs):
    (audit,) = audits([run for run in runs if run.spec.attention != "local"])
    assert list(audit.seen[0].rows) == [0]
    assert "| 0 | 17.0" in markdown([audit])


def test_the_figure_draws_what_the_table_holds(runs):
    (audit,) = audits(runs)
    axes = Figure().add_subplot()
    locality._draw(axes, audit)
    seen = [audit.seen[0].rows[tokens].accuracy for tokens in (0, 8, 32)]
    (points, _, (bars,)) = axes.containers[0]
    assert points.get_ydata().tolist() == pytest.approx([17, 20, 30, 37])
    for bar, of in zip(bars.get_segments(), seen, strict=False):
        assert bar[:, 1] == pytest.approx([100 * of.low, 100 * of.high])
    dashed = [line.get_ydata()[0] for line in axes.lines if line.get_color() == QUIET]
    assert dashed == pytest.approx([17, 10])


def test_no_curve_and_no_name_of_a_floor_hides_another(runs, monkeypatch):
    told, places = [], baselines.label

    def label(axes, below, scene):
        told.append((axes, scene, places(axes, below, scene)))
        return told[-1][-1]

    monkeypatch.setattr(baselines, "label", label)
    even = [one.model_copy(update={"baselines": {"chance": 0.1, "majority": 0.1}}) for one in runs]
    figure(audits(even))
    ((axes, scene, names),) = told
    first, second = (points.get_xdata().tolist() for points, *_ in axes.containers)
    assert not set(first) & set(second)
    assert len(names) == 1 and "chance, majority 10.0 %" in [t.get_text() for t in axes.texts]
    assert scene.conflict(names[0]) == 0
    axes.figure.draw_without_rendering()
    legend = axes.get_legend().get_window_extent()
    assert legend.y1 <= axes.xaxis.label.get_window_extent().y0


def test_what_is_not_shown_is_told_below_the_legend(runs, record):
    failed = record("local", status="diverged", reason="loss is nan", options=window(16))
    (audit,) = audits([*runs, failed])
    axes = Figure(dpi=100).add_subplot()
    locality._draw(axes, audit)
    axes.figure.draw_without_rendering()
    (told,) = [text for text in axes.texts if text.get_text().startswith("Not shown")]
    assert told.get_window_extent().y1 <= axes.get_legend().get_window_extent().y0


def test_runs_with_other_options_are_no_seeds_of_one_another(runs, record):
    other = record("softmax", accuracy=0.5, seed=1, options={"softmax": {"backend": "math"}})
    wider = record("local", accuracy=0.4, seed=1, options={"local": {"window": 32, "bias": 1}})
    (audit,) = audits([*runs, other, wider])
    assert {len(row.runs) for curve in audit.curves for row in curve.rows.values()} == {1}
    assert [(of.name, of.whole and of.whole.accuracy.mean) for of in audit.curves] == [
        ("sees a window (bias=1)", None),
        ("sees a window", None),
        ("sees all, shuffled in blocks (backend=math)", 0.5),
        ("sees all, shuffled in blocks", 0.37),
    ]
    page = markdown([audit])
    assert "| all | – | – | 50.0 [47.8, 52.2]† | 37.0 [34.9, 39.1]† |\n" in page


def test_audits_of_two_recipes_say_what_tells_them_apart(runs, record):
    rotary = {"model": {"positions": "rotary"}}
    others = [record("local", options=window(w), **rotary) for w in (8, 32)]
    page = markdown(audits([*runs, *others]))
    title = "## listops@1, budget `paper`, cuda: NVIDIA H100; positions"
    assert f"{title} learned\n\nModel: depth 2" in page
    assert f"{title} rotary\n\nModel: depth 2" in page


def test_a_leaderboard_without_windows_makes_no_audit(record):
    assert audits([record("softmax"), record("none")]) == []
    with pytest.raises(ValueError, match="harness locality TASK"):
        files([record("softmax")])


def test_the_figure_is_drawn_the_same_way_twice_and_stands_beside_the_table(runs):
    made = files(runs)
    assert list(made) == ["locality.md", "locality.png", "locality.svg"]
    again = figure(audits(reversed(runs)))
    assert all(made[name] == content for name, content in again.items())
    svg = again["locality.svg"].decode()
    assert svg.count("<!-- sees a window -->") == 1
    assert "<!-- majority 17.0 % -->" in svg
