"""Costs of training steps beside those that a paper published for the same shapes."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from reports.cost import headed, plain_values, text_of
from reports.markdown import escape, table
from reports.papers import published
from reports.render import number_text, rendered
from reports.text import NOTHING, frame_csv, number, text_table

if TYPE_CHECKING:
    from harness.records.suites import Suite

TIME, MEMORY = "s/1K steps", "GB"
"""Units of published numbers."""

WIDTH = 120
"""Characters of a line of a terminal."""

WHY = {
    "softmax[backend=naive]": "The published softmax is hand-written in fp32 and "
    "gradient-checkpointed: it computes its weights again in the backward pass, which the other "
    "published rows do not. Here they are computed once and stored.",
    "softmax[backend=sdpa]": "SDPA softmax stores no weights and is no row of the published table.",
    "primal": "The published layer stores the scores of length N x 2s; here they are folded into "
    "the output projection and never stored.",
    "softmax+primal": "The first layer of the published model is the hand-written softmax, here it "
    "is that of the backend auto; the last layer differs as in primal.",
    "performer": "The published Performer has 256 features, as has this one; the implementations "
    "are independent.",
    "nystrom": "The published model has 64 landmarks and a convolution of 35 taps, as has this "
    "one; the implementations are independent.",
    "linformer": "The published projection has k = 256, as has this one; the implementations are "
    "independent.",
    "reformer": "The published Reformer has 2 hashes, as has this one; the implementations are "
    "independent.",
}
"""What is known of the published implementation of each row, and how this one differs."""

CSV = [
    "task", "row", "attention", "options", "length", "batch", "precision", "device", "machine",
    "threads", "status", "reason", "computed_by", "backend", "time.q1", "time", "time.q3",
    "published_time", "memory", "published_memory", "time_over_first", "published_time_over_first",
    "measured_ratio", "reference", "memory_over_first", "published_memory_over_first",
    "memory_ratio", "source", "commit",
]  # fmt: skip
"""The columns of the CSV file."""

HEADINGS = {
    "time.q1": "seconds_per_1k_steps_q1", "time": "seconds_per_1k_steps_median",
    "time.q3": "seconds_per_1k_steps_q3", "published_time": "published_seconds_per_1k_steps",
    "memory": "peak_memory_gb", "published_memory": "published_peak_memory_gb",
    "time_over_first": "time_over_naive_softmax", "measured_ratio": "time_over_softmax",
    "published_time_over_first": "published_time_over_softmax", "reference": "softmax",
    "memory_over_first": "memory_over_naive_softmax",
    "published_memory_over_first": "published_memory_over_softmax",
    "memory_ratio": "memory_over_sdpa_softmax",
}  # fmt: skip
"""The headings of columns that have another name there."""

TABLES = {
    "Seconds per 1,000 steps": "time", "Peak memory in GB": "memory",
    "Time over that of naive softmax": "time_over_first",
    "Memory over that of naive softmax": "memory_over_first",
}  # fmt: skip
"""The tables of the page that have published numbers, each with its column."""


def steps(wanted: pd.DataFrame, costs: pd.DataFrame) -> pd.DataFrame:
    """The costs of training steps with the published ones, a line for each row and question.

    Args:
        wanted: a line for each row and question: `question`, `row`, `attention`, `task` (its key)
            and `shape`, of the cost. The first row is the one that published ratios refer to.
        costs: see `harness.records.frame.of_costs`: of several machines and precisions those with
            the most of these steps are used.

    Returns:
        Columns: those of `wanted` and of `costs`; `time` (seconds of 1,000 steps) with its
        quartiles, `memory` (peak of a step, 10^9 bytes), `time_over_first`, `memory_over_first`
        (over those of the first row), each of them with `published_` before its name, too; and
        `source`. Empty where nothing was measured.
    """
    costs = costs[costs["shape"].isin(wanted["shape"])] if len(costs) else costs
    if costs.empty:
        return pd.DataFrame()
    machine = costs.groupby(["machine", "threads", "precision"]).ngroup()
    own = costs[machine == machine.mode().max()].drop(columns=["row", "attention", "memory"])
    found = wanted.merge(
        own.sort_values("started").drop_duplicates("shape", keep="last"), "left", "shape"
    )
    # Of several rows of a variant, the first is the published one.
    repeated = found.duplicated(["question", "attention"])
    numbers = [
        {} if other else published(task, attention)
        for task, attention, other in zip(found["task"], found["attention"], repeated, strict=True)
    ]
    found = found.assign(
        time=1000 * found["seconds"], memory=found["peak_bytes"] / 1e9,
        published_time=[float(of[TIME].value) if TIME in of else np.nan for of in numbers],
        published_memory=[float(of[MEMORY].value) if MEMORY in of else np.nan for of in numbers],
        source=[of[TIME].reference if TIME in of else "" for of in numbers],
        **{f"time.{q}": 1000 * found[f"seconds.{q}"] for q in ("q1", "q3")},
    )  # fmt: skip
    first = found.drop_duplicates("question").set_index("question").loc[found["question"]]
    over = found[["time", "memory", "published_time", "published_memory", "measured_ratio"]]
    over = over.div(first[over.columns].to_numpy()).add_suffix("_over_first")
    # Two ratios to one softmax, which alternates with both, are better than two times.
    ratio = over.pop("measured_ratio_over_first")
    same = found["reference"].fillna("").to_numpy() == first["reference"].fillna("").to_numpy()
    over["time_over_first"] = ratio.where(same | ratio.isna(), over["time_over_first"])
    return found.join(over)


def files(found: pd.DataFrame, suite: "Suite") -> dict[str, bytes]:
    """What `SUITE.md` and `SUITE.csv` hold, by name, of `steps`."""
    table = frame_csv(headed(found, CSV, HEADINGS))
    return {f"{suite.name}.md": _page(found, suite).encode(), f"{suite.name}.csv": table}


def lines(found: pd.DataFrame) -> list[dict[Any, Any]]:
    """Each line of `steps` by the headings of the CSV file."""
    return plain_values(found, CSV, HEADINGS)


def terminal(found: pd.DataFrame) -> str:
    """Seconds per 1,000 steps of each row on each question, the published ones in brackets."""
    texts = [
        _text(line, "time")
        + ("" if np.isnan(line["published_time"]) else f" ({number(line['published_time'])})")
        for line in found.to_dict("records")
    ]
    cells = found.assign(text=texts).pivot(index="row", columns="question", values="text")
    cells = cells.loc[found["row"].unique(), found["question"].unique()]
    head = ["s/1K steps (published)", *map(str, cells)]
    return text_table(head, ([str(row), *line] for row, *line in cells.itertuples()), WIDTH)


def _page(found: pd.DataFrame, suite: "Suite") -> str:
    measured = found[found["status"].notna()]
    failed = [
        f"{line['row']}, {line['question']}: "
        + (line["status"].replace("_", " ") + f": {line['reason']}")
        if line["status"] != "ok"
        else f"{line['row']}, {line['question']}: no ratio: {line['no_ratio']}"
        for line in measured.to_dict("records")
        if line["status"] != "ok" or line["no_ratio"]
    ]
    return rendered(
        "paper_costs.md.j2",
        suite=suite,
        of=measured.iloc[0].to_dict(),
        tables={title: _beside(found, column) for title, column in TABLES.items()},
        over_softmax=_table(
            found,
            {
                "time": lambda line: _text(line, "measured_ratio"),
                "memory": lambda line: _text(line, "memory_ratio"),
            },
        ),
        sentences=[*_sentences(found)],
        failed=failed,
    )


def _text(line: Mapping[Any, Any], column: str) -> str:
    """A measured value, or why there is none."""
    if not isinstance(line["status"], str):
        return NOTHING
    return text_of(line, lambda of: number_text(of[column]))


def _beside(found: pd.DataFrame, column: str) -> str:
    """For each question a column of measured and one of published values."""

    def printed(line: Mapping[Any, Any]) -> str:
        return number_text(line[f"published_{column}"])

    return _table(found, {"here": lambda line: _text(line, column), "published": printed})


def _table(found: pd.DataFrame, texts: Mapping[str, Any]) -> str:
    """A line for each row, with these texts of each question."""
    head = [
        "attention",
        *(f"{name}, {what}" for name in found["question"].unique() for what in texts),
    ]
    lines = (
        [
            escape(str(row)),
            *(escape(text(line)) for line in own.to_dict("records") for text in texts.values()),
        ]
        for row, own in found.groupby("row", sort=False)
    )
    return table(head, lines, align_right=True)


def _sentences(found: pd.DataFrame) -> Iterator[str]:
    """For each row, how far its figures are from the published ones, and what is known of why."""
    for row, own in found.groupby("row", sort=False):
        parts = []
        for column in ("time", "memory"):
            ratios = (own[column] / own[f"published_{column}"]).dropna()
            if len(ratios):
                ends = dict.fromkeys(number(end) for end in (ratios.min(), ratios.max()))
                parts.append(f"{column} is {' to '.join(ends)} times")
        compared = f"{' and '.join(parts)} the published one. " if parts else ""
        yield f"{row}: {compared}{WHY.get(str(row), 'Nothing is known of a published one.')}"
