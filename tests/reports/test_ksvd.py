"""The page, the table and the figure of KSVD in training, made of curves of two seeds."""

import csv
import io
from pathlib import Path
from statistics import fmean

import pytest

from harness.records.ksvd import KsvdCurve, KsvdState
from reports.figures.ksvd import draw
from reports.pages import digest
from reports.pages.ksvd import ksvd
from reports.tables.ksvd import Line, alignment, as_csv, groups, square

RESULTS = Path(__file__).parents[2] / "results"


def curve(loss: str, seed: int, objective: float, trace: str = "data") -> KsvdCurve:
    states = tuple(
        KsvdState(step=step, objective=objective / (1 + step), left=0.2, right=0.4, task=0.5)
        for step in (0, 1, 9)
    )
    return KsvdCurve(
        inputs="random", trained="weights", trace=trace, loss=loss, seed=seed, samples=1,
        tokens=16, heads=1, width=8, rank=2, states=states,
    )  # fmt: skip


CURVES = [curve("ksvd", 0, 10.0), curve("ksvd", 1, -30.0), curve("task", 0, 0.0)]


def test_the_page_has_means_and_ranges_over_the_seeds():
    page = ksvd(CURVES)
    assert "alignment, random: 0.250" in page
    row = next(line for line in page.splitlines() if line.startswith("| ksvd"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == [
        "ksvd", "2", "9", "500 [100, 900]", "5.00 [1.00, 9.00]", "0.300 [0.300, 0.300]",
        "0.300 [0.300, 0.300]", "0.500",
    ]  # fmt: skip
    assert page.count("## ") == 1
    assert ksvd([*CURVES, curve("ksvd", 0, 1.0, "weights")]).count("## ") == 2


def test_the_csv_has_a_line_for_each_state():
    lines = [*csv.DictReader(io.StringIO(as_csv(CURVES)))]
    assert len(lines) == 9
    last = lines[5]
    assert (last["loss"], last["seed"], last["step"], last["objective"]) == (
        "ksvd",
        "1",
        "9",
        "-3.0",
    )
    assert (last["random_alignment"], last["task_loss"]) == ("0.25", "0.5")


def test_the_figure_has_a_line_for_each_loss_and_a_band_over_the_seeds():
    squares, alignments = draw(CURVES).axes
    line = squares.lines[0]
    assert (line.get_label(), [*line.get_xdata()]) == ("ksvd", [0, 1, 9])
    assert [*line.get_ydata()] == [500, 125, 5]
    # A zero is drawn as the smallest value of the logarithmic axis.
    assert [*squares.lines[1].get_ydata()] == [1e-16] * 3
    band = squares.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (1, 900)
    random = alignments.lines[-1]
    assert random.get_label() == "random" and set(random.get_ydata()) == {0.25}


@pytest.fixture(scope="module")
def published() -> list[KsvdCurve]:
    """The curves of `results/ksvd.csv`."""
    curves: dict[tuple, list[KsvdState]] = {}
    with (RESULTS / "ksvd.csv").open() as file:
        for row in csv.DictReader(file):
            names = ("inputs", "trained", "trace", "loss", "seed", "samples", "tokens", "heads",
                     "width", "rank")  # fmt: skip
            state = KsvdState(
                step=row["step"], objective=row["objective"], left=row["left_alignment"],
                right=row["right_alignment"], task=row["task_loss"],
            )  # fmt: skip
            curves.setdefault(tuple((name, row[name]) for name in names), []).append(state)
    return [KsvdCurve(**dict(key), states=tuple(states)) for key, states in curves.items()]


def test_the_published_page_and_figure_are_those_of_the_published_csv(published):
    table = (RESULTS / "ksvd.csv").read_bytes()
    assert as_csv(published).encode() == table
    assert (RESULTS / "ksvd.md").read_text("utf-8") == ksvd(published)
    for kind in ("png", "svg"):
        assert digest("ksvd.csv", table).encode() in (RESULTS / f"ksvd.{kind}").read_bytes()


def lines(curves: list[KsvdCurve]) -> list[dict[str, Line]]:
    """The lines of each of the four groups, by their loss."""
    return [{line.loss: line for line in group.lines} for group in groups(curves)]


def test_the_published_ksvd_loss_reaches_zero_without_the_subspaces(published):
    assert len(lines(published)) == 4
    for of_loss in lines(published):
        line, control = of_loss["ksvd"], of_loss["reconstruction"]
        start, end = line.at(0, alignment)[0], line.at(300, alignment)[0]
        assert line.at(300, square)[2] < 1e-11 and line.at(0, square)[1] > 1e-2
        assert abs(end - start) < 0.1 and end < 0.36
        assert control.at(300, alignment)[1] > 0.995


def test_beside_a_task_the_published_loss_makes_the_objective_small_and_aligns_little(published):
    gains = []
    for of_loss in lines(published):
        both, task = of_loss["task+ksvd"], of_loss["task"]
        assert both.at(300, square)[0] < 2e-5 and task.at(300, square)[0] > 2
        gains.append(both.at(300, alignment)[0] - task.at(300, alignment)[0])
        assert both.at(300, alignment)[0] < 0.45
    assert all(0 <= gain < 0.15 for gain in gains) and fmean(gains[:2]) < 0.02
