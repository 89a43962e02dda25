import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PathCollection

from reports.figures import style
from reports.figures.accuracy_time import accuracy_time, draw
from reports.tables import boards

ROOT = Path(__file__).parents[2]
NAMES = (*style.VARIANTS[:21], "plug-in", "another-plug-in")


@pytest.fixture
def board(record):
    return [record(name, accuracy=0.3 + 0.01 * i, seconds=60.0 + 20 * i, mib=100.0 * (i + 1))
            for i, name in enumerate(NAMES)]  # fmt: skip


def figure_of(records):
    with mpl.rc_context(style.STYLE):
        figure = draw(boards(records))
        figure.draw_without_rendering()
        return figure


def texts(axes):
    return [text.get_text() for text in axes.texts]


def entries(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_every_row_has_its_own_style():
    options = [("primal", f"primal (rank={rank})") for rank in range(20)]
    styles = style.point_styles([(name, name) for name in NAMES] + options)
    assert len(set(styles.values())) == len(styles) == len(NAMES) + 20


def test_a_variant_has_the_same_style_in_every_panel_and_with_any_options():
    alone = style.point_styles([("primal", "primal (rank=30)")])["primal (rank=30)"]
    assert style.point_styles([(name, name) for name in NAMES])["primal"] == alone
    styles = style.point_styles([("primal", "primal (rank=20)"), ("primal", "primal (rank=30)")])
    assert {one.colour for one in styles.values()} == {alone.colour}


def test_points_are_at_accuracy_and_time_ratio_with_areas_of_memory(board):
    axes = figure_of(board).axes[0]
    points = [one for one in axes.collections if isinstance(one, PathCollection)]
    places = {tuple(np.round(one.get_offsets()[0], 6)): one.get_sizes()[0] for one in points}
    expected = {(round((60 + 20 * i) / 200, 6), 30.0 + i): 70 * (i + 1) / 4 for i in range(23)}
    assert places == pytest.approx(expected)


def test_no_text_is_in_a_panel_and_no_legend_leaves_the_figure(board):
    figure = figure_of(board)
    axes = figure.axes[0]
    inner, outer = axes.get_window_extent(), figure.bbox
    legend = axes.get_legend().get_window_extent()
    assert not legend.overlaps(inner)
    assert outer.x0 <= legend.x0 < legend.x1 <= outer.x1
    assert outer.y0 <= legend.y0 < legend.y1 <= outer.y1
    assert not any(text.get_window_extent().overlaps(inner) for text in axes.texts)
    assert entries(axes)[0] == "another-plug-in 52.0" and len(entries(axes)) == 24


def test_a_board_with_fewer_than_two_points_has_no_panel(record):
    failed = record("primal", status="failed", reason="no", task="text")
    given = [record(), record(task="text"), failed, record(task="image", softmax=None)]
    figure = figure_of(given)
    assert not figure.axes
    assert "two points: 3" in figure.legends[0].get_title().get_text()
    assert figure.texts[0].get_text() == "No board has two variants with a cost."


@pytest.mark.slow
def test_a_figure_has_fewer_pixels_than_matplotlib_can_draw(record):
    many = [record(name, accuracy=0.5, key=f"a@1[n={key}]")
            for key in range(45) for name in ("a", "b")]  # fmt: skip
    with mpl.rc_context(style.STYLE):
        figure = draw(boards(many))
    assert len(figure.axes) == style.MOST_PANELS
    tallest = 1 + 0.165 * (style.SLOTS + style.MOST_BASELINES)
    assert style.MOST_PANELS / 2 * tallest * figure.dpi < 2**16


def test_a_row_without_a_point_is_named_below_its_panel(record):
    failed = record("yoso", status="diverged", reason="loss is nan", measured=False)
    alone = record("linear", softmax=None)
    axes = figure_of([record(), record("primal"), failed, alone]).axes[0]
    note = "Not shown: linear: time ratio not measured; yoso: diverged: loss is nan"
    assert " ".join(texts(axes)[-1].split()) == note


def test_a_panel_names_options_and_overrides_below_its_task(record):
    shared = {"key": "text@1[dev=5,test=6]", "overrides": {"train.lr": 0.1}}
    axes = figure_of([record(**shared), record("primal", **shared)]).axes[0]
    assert axes.get_title(loc="left") == "text@1"
    below = "dev=5,test=6, budget paper with train.lr=0.1, cuda: NVIDIA H100"
    assert below in " ".join(texts(axes)[0].split())


def test_a_very_wide_interval_does_not_set_the_scale(record):
    given = [record(seed=n, accuracy=0.2 + 0.2 * n) for n in range(2)] + [record("primal")]
    low, high = figure_of(given).axes[0].get_ylim()
    assert low > 10 and high < 70


def test_the_same_records_give_the_same_bytes_in_any_order(board):
    assert accuracy_time(boards(board), "x") == accuracy_time(boards(board[::-1]), "x")


def test_only_the_figures_import_seaborn():
    code = "import sys, harness.cli.commands, reports.pages, reports.tables; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "reports.pages" in done.stdout and "seaborn" not in done.stdout, done.stderr


def test_the_files_name_their_source_and_hold_no_date(record):
    images = accuracy_time(boards([record(), record("primal")]), "made for a test")
    assert images["accuracy_time.png"].startswith(b"\x89PNG")
    assert b"dc:date" not in images["accuracy_time.svg"]
    assert all(b"made for a test" in content for content in images.values())
