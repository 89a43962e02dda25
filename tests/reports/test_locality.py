import matplotlib as mpl
import pytest

from reports.figures import style
from reports.figures.locality import draw
from reports.pages import locality_files
from reports.pages.locality import locality
from reports.tables.locality import ALL, studies


def window(tokens, **options):
    return {"local": {"window": tokens, **options}}


def shuffled(record, tokens, **changes):
    key = f"listops@1, blocks of {tokens} shuffled"
    return record("softmax", key=key, block=tokens, **changes)


@pytest.fixture
def runs(record):
    """Full attention, none, two windows, and two sizes of shuffled blocks."""
    return [
        record("softmax", accuracy=0.37),
        record("none", accuracy=0.17),
        record("local", accuracy=0.20, options=window(8)),
        record("local", accuracy=0.30, options=window(32)),
        shuffled(record, 8, accuracy=0.21, baselines={"chance": 0.9}),
        shuffled(record, 32, accuracy=0.36),
        record("primal", accuracy=0.99),
        record("local", accuracy=0.99, options={"local": {"size": 3}}),
        record("local", accuracy=0.99, options={"local": {"window": "wide"}}),
    ]


def test_a_study_has_a_row_for_each_number_of_tokens(runs):
    page = locality(studies(runs))
    assert [line for line in page.splitlines() if line.startswith("|")] == [
        "| tokens | windowed attention | full attention, shuffled blocks |",
        "| --- | --: | --: |",
        "| 0 | 17.0 [15.4, 18.7]† | – |",
        "| 8 | 20.0 [18.3, 21.8]† | 21.0 [19.3, 22.8]† |",
        "| 32 | 30.0 [28.0, 32.0]† | 36.0 [33.9, 38.1]† |",
        "| all | 37.0 [34.9, 39.1]† | 37.0 [34.9, 39.1]† |",
        "| *majority* | *17.0* |  |",
        "| *chance* | *10.0* |  |",
    ]
    assert page.endswith("† One seed: the interval covers the sampling of the test split alone.\n")
    assert "## listops@1, budget paper, cuda: NVIDIA H100\n\nModel: depth 2" in page


def test_without_shuffled_blocks_one_curve_ends_at_full_attention(runs):
    page = locality(studies(run for run in runs if not run.spec.task.block))
    assert "| tokens | windowed attention |\n" in page and "| all | 37.0" in page
    assert "No runs with shuffled blocks." in page


def test_shuffled_blocks_make_a_study_without_windows(record):
    (study,) = studies([shuffled(record, 8)])
    assert study.has_blocks and [*study.ticks.values()] == ["8", "all"]


def test_failures_are_cells_with_their_reason(runs, record):
    failed = [record("local", status="failed", reason="no", seed=n, options=window(16))
              for n in (0, 1)]  # fmt: skip
    partial = record("local", status="failed", reason="no", seed=1, options=window(32))
    page = locality(studies([*runs, *failed, partial]))
    assert "| 16 | failed: no | – |" in page
    assert "| 32 | 30.0 [28.0, 32.0]†‡; seed 1 failed: no | 36.0" in page


def test_runs_with_other_options_make_other_curves(runs, record):
    other = record("softmax", accuracy=0.5, seed=1, options={"softmax": {"backend": "math"}})
    wider = record("local", accuracy=0.4, seed=1, options=window(32, bias=1))
    (study,) = studies([*runs, other, wider])
    assert [
        (of.name, of.rows[ALL].score.mean if ALL in of.rows else None) for of in study.curves
    ] == [
        ("windowed attention (bias=1)", None),
        ("windowed attention", None),
        ("full attention, shuffled blocks (backend=math)", 50.0),
        ("full attention, shuffled blocks", 37.0),
    ]


def test_studies_of_two_recipes_name_the_difference(runs, record):
    rotary = {"model": {"positions": "rotary"}}
    others = [record("local", options=window(w), **rotary) for w in (8, 32)]
    first, second = (study.title.partition("; ")[2] for study in studies([*runs, *others]))
    assert (first, second) == ("positions learned", "positions rotary")


def test_records_without_windows_make_no_study(record):
    given = [record("softmax"), record("none")]
    assert studies(given) == []
    with pytest.raises(ValueError, match="harness study locality TASK"):
        locality_files(given)


def test_the_figure_draws_the_table_and_names_what_is_not_shown(runs, record):
    failed = record("local", status="diverged", reason="loss is nan", options=window(16))
    with mpl.rc_context(style.STYLE):
        (axes,) = draw(studies([*runs, failed])).axes
    (points, _, (bars,)), (others, _, _) = axes.containers
    assert points.get_ydata().tolist() == pytest.approx([17, 20, 30, 37])
    assert bars.get_segments()[0][:, 1] == pytest.approx([15.4, 18.7], abs=0.05)
    assert not {*points.get_xdata()} & {*others.get_xdata()}
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["windowed attention", "full attention, shuffled blocks", "majority 17.0"]
    note = "Not shown: windowed attention, 16: diverged: loss is nan"
    assert axes.texts[-1].get_text() == note


def test_the_same_records_give_the_same_files(runs):
    made = locality_files(runs)
    assert list(made) == ["locality.md", "locality.png", "locality.svg"]
    assert locality_files(reversed(runs)) == made
