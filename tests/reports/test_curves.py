"""Curves of training: values over the seeds, against steps and seconds."""

import csv
import io
from xml.etree import ElementTree

from harness.records.record import Record
from reports.pages import curve_files
from reports.tables import boards
from reports.tables.curves import Place, curve, dev, loss
from tests.reports.conftest import make_record


def trained(seed: int, *points: tuple[int, float, float, float | None], **fields) -> Record:
    """A run with a curve of (step, seconds, loss, dev accuracy)."""
    tree = make_record(seed=seed, **fields).model_dump()
    names = ("step", "seconds", "loss", "dev")
    tree["curve"] = [{**dict(zip(names, one, strict=True)), "losses": {}} for one in points]
    return Record.model_validate(tree)


RUNS = [
    trained(0, (5, 1.0, 2.0, None), (10, 2.0, 1.0, 25.0)),
    trained(1, (5, 3.0, 4.0, None), (10, 4.0, 2.0, 75.0)),
    trained(2, (5, 2.0, 3.0, None), status="diverged"),
]


def test_a_curve_is_the_mean_and_range_of_the_seeds_that_reached_a_step():
    (row,) = boards(RUNS)[0].rows
    assert curve(row, loss) == [Place(5, 2.0, 3.0, 2.0, 4.0), Place(10, 3.0, 1.5, 1.0, 2.0)]
    assert curve(row, dev) == [Place(10, 3.0, 50.0, 25.0, 75.0)]


def test_the_files_hold_every_point():
    made = curve_files(RUNS)
    rows = [*csv.DictReader(io.StringIO(made["curves.csv"].decode()))]
    assert [(row["seed"], row["step"], row["dev"]) for row in rows] == [
        ("0", "5", ""), ("0", "10", "25.0"), ("1", "5", ""), ("1", "10", "75.0"), ("2", "5", ""),
    ]  # fmt: skip
    ElementTree.fromstring(made["curves.svg"])
    assert made["curves.svg"].decode().count("seconds of training") == 2
    assert curve_files(RUNS[::-1]) == made
