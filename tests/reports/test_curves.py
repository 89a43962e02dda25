"""Curves of training: values over the seeds, against steps and seconds."""

import csv
import io
from xml.etree import ElementTree

import matplotlib as mpl
import pytest

from harness.records import frame
from harness.records.record import Record
from reports import curves
from reports.figures import style
from tests.reports.conftest import make_record


def trained(seed: int, *points: tuple[int, float, float, float | None], **fields) -> Record:
    """A run with a curve of (step, seconds, loss, dev score)."""
    tree = make_record(seed=seed, **fields).model_dump()
    names = ("step", "seconds", "loss", "dev")
    tree["curve"] = [{**dict(zip(names, one, strict=True)), "losses": {"j": 1}} for one in points]
    return Record.model_validate(tree)


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


def test_the_files_hold_every_point():
    made = curves.files(*frames(RUNS))
    lines = [*csv.DictReader(io.StringIO(made["curves.csv"].decode()))]
    assert [(line["seed"], line["step"], line["dev"], line["losses"]) for line in lines] == [
        ("0", "5", "", '{"j": 1.0}'), ("0", "10", "25.0", '{"j": 1.0}'),
        ("1", "5", "", '{"j": 1.0}'), ("1", "10", "75.0", '{"j": 1.0}'),
        ("2", "5", "", '{"j": 1.0}'),
    ]  # fmt: skip
    ElementTree.fromstring(made["curves.svg"])
    assert made["curves.svg"].decode().count("seconds of training") == 2
    assert curves.files(*frames(RUNS[::-1])) == made


def test_a_panel_names_options_and_overrides_below_its_task():
    shared = {"key": "text@1[dev=5,test=6]", "overrides": {"train.lr": 0.1}}
    records = [make_record(**shared), make_record("primal", **shared)]
    with mpl.rc_context(style.STYLE):
        figure = curves.draw(curves.curves(*frames(records)))
        figure.draw_without_rendering()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss"] * 2 + ["dev accuracy, %"] * 2
    assert figure.axes[0].get_title(loc="left") == "text@1"
    below = "dev=5,test=6, recipe paper with train.lr=0.1, cuda: NVIDIA H100"
    assert below in " ".join(figure.axes[0].texts[0].get_text().split())


@pytest.mark.slow
def test_a_figure_has_fewer_pixels_than_matplotlib_can_draw():
    many = [make_record(name, key=f"a@1[n={key}]") for key in range(12) for name in ("a", "b")]
    with mpl.rc_context(style.STYLE):
        figure = curves.draw(curves.curves(*frames(many)))
    assert len(figure.axes) == style.MOST_PANELS
    tallest = 1 + style.LINE_HEIGHT * style.SLOTS
    assert style.MOST_PANELS / 2 * tallest * figure.dpi < 2**16
