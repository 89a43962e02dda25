"""The columns of the leaderboard as texts."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from harness.records.record import WITHOUT_SOFTMAX, Metric
from reports.text import NOTHING, number, whole_text

MIB, GIGA = 2**20, 10**9

MOST_DIFFERENCE = 0.1
"""The number of parameters of a row is compared with softmax's where it differs by more."""

Line = Mapping[Hashable, Any]
"""A line of `reports.leaderboard.rows_of`."""


class Column(NamedTuple):
    """A column of a table: its heading, that on a terminal (or none), and the text of a line.

    An optional one is left out where no row has a value other than 0.
    """

    heading: str
    short: str
    text: Callable[[Line], str]
    optional: str = ""


def _row(line: Line) -> str:
    return f"{line['row']}{' (outdated)' * bool(line['outdated'])}"


def _score(line: Line) -> str:
    """The score with its interval, in brackets at a baseline, and how runs ended."""
    if not line["text"]:
        return line["status"] or NOTHING
    text = f"({line['text']})" if line["at_baseline"] else line["text"]
    return "; ".join(filter(None, [f"{text} {line['interval']}", line["status"]]))


def _dev(line: Line) -> str:
    return NOTHING if pd.isna(line["dev"]) else f"{line['dev']:z,.{int(line['dev_digits'])}f}"


def _best_on_test(line: Line) -> str:
    best = line["best_on_test"]
    return NOTHING if pd.isna(best) else metric_of(line).text(best)


def metric_of(line: Line) -> Metric:
    """The metric of a line of a frame."""
    fields = {name: line[name] for name in ("unit", "better", "digits")}
    return Metric(name=line["metric"], **fields)


def _of(count: float, whole: int) -> str:
    return NOTHING if pd.isna(count) else f"{count:.0f} of {whole}"


def _seeds(line: Line) -> str:
    return str(line["runs"]) if line["seeds"] == line["runs"] else _of(line["seeds"], line["runs"])


def _size(line: Line) -> str:
    """The parameters, with their ratio to softmax's where it is another."""
    text = whole_text(line["parameters"])
    ratio = line["parameters"] / line["softmax_parameters"]
    # Softmax of a matched row has the width of the row, and not of the recipe.
    differs = not line["match"] and abs(ratio - 1) > MOST_DIFFERENCE
    return f"{text} ({ratio:.2f} × softmax)" if differs else text


def _cost(heading: str, short: str, name: str, scale: float = 1.0) -> Column:
    def text(line: Line) -> str:
        if pd.isna(line["step_seconds"]):
            return "not measured"
        if pd.notna(line[name]):
            return number(scale * line[name])
        return WITHOUT_SOFTMAX if pd.isna(line["memory_ratio"]) else "not measured"

    return Column(heading, short, text)


COLUMNS = (
    Column("attention", "attention", _row),
    Column("test {metric} [95 % interval]", "test", _score),
    Column("group", "group", lambda line: line["rank_group"] or NOTHING, "rank_group"),
    Column("best (%)", "best %", lambda line: whole_text(line["best"]), "best"),
    Column("seeds at a baseline", "", lambda line: _of(line["seeds_at_baseline"], line["seeds"]),
           "seeds_at_baseline"),
    Column("dev {dev_metric}", "dev", _dev),
    Column("best on test, chosen on test", "", _best_on_test, "best_on_test"),
    Column("seeds", "seeds", _seeds),
    Column("known check failures", "", lambda line: whole_text(line["known_failures"]),
           "known_failures"),
    _cost("time (s / 1K steps)", "s/1K steps", "step_seconds", 1000),
    _cost("time (× fastest softmax)", "time ×", "time_ratio"),
    Column("fastest softmax", "", lambda line: line["reference"] or NOTHING, "reference"),
    _cost("peak memory (MiB)", "", "peak_bytes", 1 / MIB),
    _cost("peak memory (× SDPA softmax)", "peak memory ×", "memory_ratio"),
    _cost("inference (tokens / s)", "", "tokens_per_second"),
    _cost("inference time (× fastest softmax)", "", "inference_ratio"),
    Column("parameters", "", _size),
    Column("GFLOPs / step", "", lambda line: number(line["flops"] / GIGA)),
)  # fmt: skip
