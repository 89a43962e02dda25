"""Figures: their styles, axes and texts; of costs, suites and studies, and curves of training."""

from itertools import pairwise
from xml.etree import ElementTree

import matplotlib as mpl
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from harness.catalogue import described
from harness.records import families, frame
from harness.records.frame import of_costs
from harness.records.record import Point, Record
from reports import cost, curves
from reports.figures import heat_map, plane, style
from reports.pages.suite import files, tables
from reports.studies import study_files
from reports.text import digest
from tests.reports.conftest import csv_lines, make_cost, make_record

LENGTHS = (256, 512, 1024)
FAMILIES = {"a1": "primal", "a2": "primal", "b1": "kernel", "b2": "kernel", "c": "decay"}


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    of = FAMILIES | {"softmax": "softmax", "primal": "primal", "linear": "kernel"}
    monkeypatch.setattr(families, "_listed", lambda: {name: {"family": of[name]} for name in of})


def figure_of(draw, *arguments):
    with mpl.rc_context(style.STYLE):
        figure = draw(*arguments)
        figure.draw_without_rendering()
        return figure


def test_eight_rows_are_coloured_the_best_of_each_family_first():
    rows = [(name, f"{name} {i}") for i in range(3) for name in FAMILIES]
    styles = style.point_styles(rows)
    coloured = {label: found for label, found in styles.items() if found[0] != style.FAINT}
    assert [*coloured] == ["a1 0", "a2 0", "b1 0", "b2 0", "c 0", "a1 1", "a2 1", "b1 1"]
    assert len(set(coloured.values())) == 8 and len(styles) == 15
    last = style.point_styles([*rows[:12], ("plug-in", "plug-in")])
    assert last["plug-in"][0] == families.colour_of("unknown") != style.FAINT
    assert last["b1 1"][0] == style.FAINT
    # A family has one colour, a composition that of its last layer.
    styles = style.point_styles([("a1", "1"), ("c+a2", "2"), ("c", "3"), ("unknown", "4")])
    assert styles["1"][0] == styles["2"][0] == families.colour_of("a1")
    assert styles["1"][1] != styles["2"][1]
    assert len({colour for colour, _ in styles.values()}) == 3
    for low, high in ((0.9, 1.2), (0.1, 4), (3, 3000), (1e-5, 1e7)):  # of logarithmic axes
        ticks = style.ticks(low, high)
        assert len(ticks) >= 3 and low <= min(ticks) < max(ticks) <= high


def test_the_figure_of_costs_names_eight_lines_and_marks_the_crossover():
    slow = {f"x{i}": (5, 4, 3 + i) for i in range(9)}
    ratios = {"softmax": (1, 1, 1), **slow, "primal": (2, 0.5, 0.25), "linear": (2, 1.5, 1.2)}
    each = [(row, *of) for row in ratios for of in zip(LENGTHS, ratios[row], strict=True)]
    records = [make_cost(row, length, ratio=of, seconds=of) for row, length, of in each]
    two_lengths = [make_cost("softmax", length, heads=4) for length in LENGTHS[:2]]
    figure = figure_of(cost.draw, cost.sweeps(of_costs([*records, *two_lengths])))
    time, _ = figure.axes
    names = [text.get_text() for text in time.texts[1:]]
    assert names == ["primal", "softmax", "linear", "x0", "x1", "x2", "x3", "x4"]
    heights = [text.xyann[1] for text in time.texts[1:]]
    assert min(above - below for below, above in pairwise(heights)) > 0.99 * style.APART
    # The heading is small; no text says why a cost is missing.
    assert len(time.texts) == 9 and time.get_legend() is None
    colours = {to_hex(line.get_color()) for line in time.lines} - {style.FAINT}
    assert len(colours) == 4
    (star,) = [line for line in time.lines if line.get_marker() == "*"]
    assert 256 < star.get_xdata()[0] < 512 and 125 < star.get_ydata()[0] < 250
    ticks = [text.get_text() for text in time.get_xticklabels()]
    assert ticks == ["256", "512", "1,024"] and len(time.get_yticks()) >= 3


def test_names_beside_the_axes_are_at_the_height_of_their_points():
    def heights(means) -> tuple:
        rows = pd.DataFrame({"mean": means, "x": 1.0, "attention": "softmax"})
        _, (axes,) = style.panels([3.0])
        plane.points(axes, rows, "x", beside=True)
        return axes.get_ylim(), [text.xyann[1] for text in axes.texts]

    (low, high), found = heights([0.05, 0.45, 0.95])
    assert found == pytest.approx([(y - low) / (high - low) for y in (0.05, 0.45, 0.95)], abs=0.01)
    _, crowd = heights([99.0] * 20)
    assert max(crowd) <= 1 and min(b - a for a, b in pairwise(crowd)) > 0.049


def test_the_heat_map_has_a_bar_for_each_cost_and_is_lightest_at_a_baseline(suite_frames):
    of = suite_frames.tables()
    (axes,) = figure_of(heat_map.draw, of).axes
    assert {"1.0", "1.8", "4.0", "0.90"} <= {text.get_text() for text in axes.texts}
    every = of.answers.set_index(["question", "row"]).xs("recall")
    light, best = (sum(colour[:3]) for colour in heat_map.colours(
        every.loc[["none", "softmax"]], every))  # fmt: skip
    assert light > best + 0.5
    assert heat_map.colours(every.reindex(["mine"]), every) == [None]


def test_a_field_is_grey_where_a_run_is_missing_and_blank_where_none_is_possible(suite_frames):
    of = suite_frames.tables()
    title = of.suite.question("copy").title
    gone = of.answers.eval("row == 'primal' and question == 'copy'")
    without = of._replace(answers=of.answers.assign(mean=of.answers["mean"].where(~gone)))
    for missing in ([], [("primal", title)]):
        (axes,) = figure_of(heat_map.draw, without._replace(missing=missing)).axes
        colours = [to_hex(field.get_facecolor()[0]) for field in axes.collections]
        assert colours.count(heat_map.EMPTY) == len(missing)
    # Two layers have no model of one.
    two = of.suite.rows[0].model_copy(update={"attention": "softmax+primal"})
    shallow = of.suite.questions[0].model_copy(update={"model": {"depth": 1}})
    suite = of.suite.model_copy(update={"rows": (two,), "questions": (shallow,)})
    assert not suite_frames.tables(suite=suite).missing


def test_the_plane_of_a_suite_has_a_point_for_each_row_with_a_mean_and_a_time(suite_frames):
    suite = suite_frames.suite.model_copy(update={"average": True})
    of = suite_frames.tables(suite=suite)
    panels = figure_of(plane.draw, of).axes
    means = of.matrix["bidirectional"].loc["primal"]
    lines = [[*line.get_ydata()] for axes in panels for line in axes.lines]
    assert [means["mean.low"], means["mean.high"]] in lines
    for axes, times in zip(panels, [{1, 0.8, 3}, {1, 0.4}], strict=True):
        points = {line.get_xdata()[0] for line in axes.lines if line.get_marker() != "None"}
        assert points == times
        assert len({text.get_text() for text in axes.texts}) == len(times)


HARD = r"$\foo{$ </svg>&漢字" + "\x00\x1b[31m"


def files_of_suite(suite_frames) -> dict[str, bytes]:
    suite, *others = suite_frames
    names = ((row, HARD if row.attention == "primal" else row.attention) for row in suite.rows)
    rows = tuple(row.model_copy(update={"attention": name}) for row, name in names)
    suite = suite.model_copy(update={"rows": rows})
    frames = (table.replace("primal", HARD) for table in others)
    return files(tables(suite, *frames, described()), latex=False)


STUDY = pd.DataFrame({"name": [HARD], "value": [1.0]})
PANEL = (HARD, lambda axes: axes.plot([0, 1], [0, 1], label=HARD), 1)
FILES = {
    "cost": lambda _, step: cost.files(
        of_costs([make_cost(a, n) for a in ("softmax", HARD) for n in LENGTHS][::step])
    ),
    "curves": lambda _, step: curves.files(*frames([make_record(), make_record(HARD)][::step])),
    "mine": lambda suite_frames, _: files_of_suite(suite_frames),
    "a": lambda *_: study_files("a", "# Head\n", [(HARD, STUDY, HARD)], [PANEL], STUDY),
}  # fmt: skip
"""The files of each figure from `suite_frames`, or from records: with -1, in the other order."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n == "a" else pytest.mark.slow) for n in FILES]
)
def test_a_figure_shows_any_text_names_its_table_and_has_the_same_bytes(name, suite_frames):
    found, again = (FILES[name](suite_frames, step) for step in (1, -1))
    source = digest(f"{name}.csv", found[f"{name}.csv"]).encode()
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml")):
        image = found[f"{name}.{kind}"]
        assert image.startswith(start) and image == again[f"{name}.{kind}"]
        assert source in image
    ElementTree.fromstring(image)
    assert b"dc:date" not in image
    # No text is a formula.
    assert "漢字".encode() in image and rb"$\foo{$" in image


def trained(seed: int, *points: tuple[int, float, float, float | None], **fields) -> Record:
    """A run with a curve of (step, seconds, loss, dev score)."""
    curve = [Point(step=step, seconds=seconds, loss=loss, dev=dev, losses={"j": 1})
             for step, seconds, loss, dev in points]  # fmt: skip
    return make_record(seed=seed, **fields).model_copy(update={"curve": curve})


RUNS = [
    trained(0, (5, 1.0, 2.0, None), (10, 2.0, 1.0, 25.0)),
    trained(1, (5, 3.0, 4.0, None), (10, 4.0, 2.0, 75.0)),
    trained(2, (5, 2.0, 3.0, None), status="diverged"),
]


def frames(records):
    return frame.of_records(records), frame.of_curves(records)


@pytest.mark.parametrize(
    ("value", "expected"),
    [("loss", [[5, 2, 3, 2, 4], [10, 3, 1.5, 1, 2]]), ("dev", [[10, 3, 50, 25, 75]])],
)
def test_a_curve_is_the_mean_and_range_of_the_seeds_that_reached_a_step(value, expected):
    found = curves.over_seeds(curves.curves(*frames(RUNS)), value)
    assert found[["step", "seconds", "mean", "low", "high"]].values.tolist() == expected


def test_the_files_hold_every_point(unrendered):
    found = curves.files(*frames(RUNS))
    lines = csv_lines(found["curves.csv"])
    assert [(line["seed"], line["step"], line["dev"]) for line in lines] == [
        ("0", "5", ""), ("0", "10", "25.0"), ("1", "5", ""), ("1", "10", "75.0"), ("2", "5", ""),
    ]  # fmt: skip
    assert {line["losses"] for line in lines} == {'{"j": 1.0}'}
    assert curves.files(*frames(RUNS[::-1])) == found


def test_a_panel_names_options_and_overrides_below_its_task():
    shared = {"key": "text@1[dev=5,test=6]", "overrides": {"train.lr": 0.1}}
    records = [make_record(**shared), make_record("primal", **shared)]
    figure = figure_of(curves.draw, curves.curves(*frames(records)))
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss"] * 2 + ["dev accuracy, %"] * 2
    assert [axes.get_xlabel() for axes in figure.axes].count("seconds of training") == 2
    assert figure.axes[0].get_title(loc="left") == "text"
    below = "recipe paper, dev 5, test 6, learning rate 0.1"
    assert below in " ".join(figure.axes[0].texts[0].get_text().split())
