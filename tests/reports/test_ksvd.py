"""The page, the table and the figure of KSVD in training, made of curves of two seeds."""

import csv
import io

from harness.records.ksvd import KsvdCurve, KsvdState
from reports.figures.ksvd import draw
from reports.pages.ksvd import ksvd
from reports.tables.ksvd import as_csv


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
