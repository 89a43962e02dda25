from itertools import combinations, pairwise

import matplotlib as mpl
import pytest
from matplotlib.collections import PathCollection

from reports import plots
from reports.bubbles import bubbles
from reports.rows import boards

NAMES = ("softmax", "reformer", "performer", "nystrom", "primal", "softmax+primal")


@pytest.fixture
def board(record):
    """Six variants, crowded as they are on a real board."""
    given = [
        record(
            name, seed=seed, accuracy=0.37 + 0.002 * i, seconds=60.0 + 20 * i, mib=100.0 * (i + 1)
        )
        for i, name in enumerate(NAMES)
        for seed in range(2)
    ]
    return given


def draw(records):
    with mpl.rc_context(plots.STYLE):
        return plots._figure(boards(records))


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_every_variant_is_labelled_where_no_other_text_stands(board):
    axes = draw(board).axes[0]
    placed = {text.get_text(): text.get_window_extent() for text in axes.texts}
    assert {*NAMES, "chance 10.0 %", "majority 17.0 %"} <= set(placed)
    for one, other in combinations(placed, 2):
        assert not placed[one].overlaps(placed[other]), (one, other)


def test_no_label_leaves_its_panel(board):
    axes = draw(board).axes[0]
    frame = axes.get_window_extent()
    for text in axes.texts:
        if text.get_text() in NAMES:
            corners = text.get_window_extent().corners()
            assert all(frame.contains(*corner) for corner in corners), text.get_text()


def test_bubble_areas_are_in_proportion_to_memory(board):
    axes = draw(board).axes[0]
    drawn = [c for c in axes.collections if isinstance(c, PathCollection)]
    areas = {float(c.get_offsets()[0][0]): c.get_sizes()[0] for c in drawn[::2]}
    per_mib = [areas[60.0 + 20 * i] / (100 * (i + 1)) for i in range(len(NAMES))]
    assert per_mib == pytest.approx([per_mib[0]] * len(NAMES))


def test_a_variant_keeps_its_colour_in_every_panel(record):
    given = [record("primal"), record("softmax"), record("primal", task="text")]
    first, second = draw(given).axes[:2]

    def colour(axes):
        return next(text.get_color() for text in axes.texts if text.get_text() == "primal")

    assert colour(first) == colour(second)


def test_the_time_axis_is_logarithmic_only_where_the_range_warrants_it(record):
    def scale(slowest):
        given = [record(seconds=10.0), record("primal", seconds=slowest)]
        return draw(given).axes[0].get_xscale()

    assert (scale(39.0), scale(41.0)) == ("linear", "log")


def test_a_run_that_failed_is_named_below_its_panel(record):
    failed = record("primal", status="diverged", reason="loss is nan", measured=False)
    axes = draw([record(), failed]).axes[0]
    assert "Not shown – primal: diverged: loss is nan" in words(axes)


def test_a_board_where_all_failed_says_so(record):
    given = [record(name, status="failed", reason="ValueError") for name in ("a", "b")]
    axes = draw(given).axes[0]
    assert "a: failed: ValueError\nb: failed: ValueError" in words(axes)


def test_panels_of_one_title_say_what_tells_them_apart(record):
    first, second = draw([record(), record(model={"positions": "rotary"})]).axes[:2]
    setting = "budget paper · cuda: NVIDIA H100"
    assert f"{setting}\npositions learned" in words(first)
    assert f"{setting}\npositions rotary" in words(second)


def test_a_panel_names_options_and_shuffled_blocks_below_its_title(record):
    axes = draw([record(key="listops@1[dev=5,test=6], blocks of 8 shuffled")]).axes[0]
    assert axes.get_title(loc="left") == "listops@1"
    assert "dev=5, test=6, blocks of 8 shuffled\nbudget paper · cuda: NVIDIA H100" in words(axes)


def test_floors_of_one_height_share_a_label(record):
    axes = draw([record(baselines={"chance": 0.5, "majority": 0.5}, accuracy=0.7)]).axes[0]
    assert "chance, majority 50.0 %" in words(axes)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 7])
def test_every_board_has_a_panel(record, count):
    figure = draw([record(key=f"listops@{n + 1}") for n in range(count)])
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert [title for title in titles if title] == [f"listops@{n + 1}" for n in range(count)]


def test_one_run_alone_makes_a_png_and_an_svg_without_a_date(record):
    images = plots.accuracy_time(boards([record()]), "drawn from a test")
    assert images["accuracy_time.png"].startswith(b"\x89PNG")
    assert b"<svg" in images["accuracy_time.svg"]
    assert b"dc:date" not in images["accuracy_time.svg"]


@pytest.mark.parametrize("memory", [0.3, 1.0, 7.0, 20.0, 999.0, 1000.0, 81234.0])
def test_the_legend_shows_round_sizes_just_below(memory):
    shown = plots._round(memory * 2**20) / 2**20
    assert memory / 2.5 < shown <= memory
    assert f"{shown:e}"[0] in "125"


def test_time_marks_thin_out_as_the_axis_grows():
    counts = [len(plots._subs(ratio)) for ratio in (5, 50, 500)]
    assert all(more > fewer for more, fewer in pairwise(counts))


def test_a_bubble_stands_at_the_mean_between_the_ends_of_its_interval(board, record):
    one = record("linear", accuracy=0.3), record("linear", seed=1, accuracy=0.32)
    (of,) = boards([*board, *one])
    for bubble in bubbles(of):
        (row,) = (row for row in of.rows if row.label == bubble.label)
        mean, low, high = (100 * end for end in row.accuracy[:3])
        assert (bubble.accuracy, bubble.low, bubble.high) == (mean, low, high)
        assert low < mean < high or bubble.label != "linear"
