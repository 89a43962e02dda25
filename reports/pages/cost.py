"""The page of cost sweeps as Markdown."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from harness.records.cost import CostRecord, Measured
from reports.markdown import escape, table
from reports.tables import cost
from reports.tables.cost import CostRow, Sweep, sweeps
from reports.tables.values import NOTHING, number

HEAD = """\
# Cost against the number of tokens

Every cell was measured in a process of its own, alternately with softmax of the same shape. Time is
the median of synchronised calls, with its ratio to the fastest exact softmax of the length in this
precision (SDPA or the formula, as a trial found it). Memory is the peak that one call allocates, in
decoding with the state (softmax: the cache of keys and values), with its ratio to SDPA softmax;
with a batch of `tokens=` it is that of one sample, so that every length has the same batch.
*Exponent*: b of cost = a N^b for one sample over the longest four lengths, with its 95 % interval.
*Faster from*, *smaller from*: the length from which a row takes less time than the fastest softmax,
less memory than SDPA softmax. For time, those of both quartiles of the ratio; *undecided* where one
quartile is below 1 at every length and the other is not below 1 at the last. No length is
extrapolated. *Limit*: the time at the longest length over the least time in which the device
transfers the tokens and the parameters (decoding: and the state) or computes the matrix products of
the variant, whichever takes longer, at the rates of a large copy and of a large matrix product.
"""


class Crossovers(NamedTuple):
    """From which length a variant costs less than softmax.

    Attributes:
        texts: the length for time and the one for memory, by variant; of several rows of one
            variant, those of the fastest.
        caption: what was measured.
    """

    texts: Mapping[str, tuple[str, str]]
    caption: str


def training_crossovers(records: Iterable[CostRecord]) -> Crossovers | None:
    """Those of the sweep over trained layers with the most cells; None without such a sweep."""
    own = [one for one in records if (one.spec.operation, one.spec.level) == ("train", "layer")]
    if not own:
        return None
    sweep = max(sweeps(own), key=lambda one: sum(len(row.cells) for row in one.rows))
    # The last one of a name is kept.
    ordered = sorted(sweep.rows, key=_longest_cell, reverse=True)
    texts = {
        row.name: (
            cost.crossover_text(row.time_crossover),
            cost.crossover_text(row.memory_crossover),
        )
        for row in ordered
    }
    first, last = sweep.lengths[0], sweep.lengths[-1]
    return Crossovers(
        texts,
        "*Faster from* and *smaller from*: the number of tokens from which training a layer takes "
        "less time than the fastest exact softmax, less memory than SDPA softmax. "
        f"Lengths: {first:,} to {last:,} tokens. Setting: {escape(sweep.title)}. "
        "[All costs](results/cost.md).",
    )


def _longest_cell(row: CostRow) -> tuple[float, float]:
    """Orders rows by speed: those that fail earlier are slower."""
    measured = row.measured
    longest = max(measured, default=0)
    return -longest, measured[longest].seconds.median if longest else 0.0


def cost_page(sweeps: Sequence[Sweep]) -> str:
    """The page: for each sweep, what it says, and its cells."""
    parts = [HEAD, "![Time and memory of one sample against its tokens](cost.svg)\n"]
    for sweep in sweeps:
        parts += [f"## {escape(sweep.title)}\n", _summary(sweep)]
        parts += [f"Time in ms (× fastest softmax). {sweep.references}".rstrip() + "\n"]
        parts += [_cells(sweep, cost.time_text), "Memory in MiB (× SDPA softmax):\n"]
        parts += [_cells(sweep, cost.memory_text)]
        parts += [f"{escape(remark)}\n" for row in sweep.rows for remark in row.remarks]
    return "\n".join(parts)


def _summary(sweep: Sweep) -> str:
    head = [
        "attention", "claim", "time exponent", "memory exponent", "faster from", "smaller from",
        "× limit", "state of a sample (bytes)",
    ]  # fmt: skip
    return table(head, [[escape(text) for text in _line(row)] for row in sweep.rows])


def _line(row: CostRow) -> list[str]:
    measured = list(row.measured.values())
    last = measured[-1] if measured else None
    state = last.state_bytes if last else None
    batch = row.cells[max(row.measured)].spec.batch if measured else 1
    return [
        row.label,
        row.claim,
        cost.exponent_text(row.time_exponent),
        cost.exponent_text(row.memory_exponent),
        cost.crossover_text(row.time_crossover),
        cost.crossover_text(row.memory_crossover),
        number(last.over_limit) if last else NOTHING,
        NOTHING if state is None else f"{state // batch:,}",
    ]


def _cells(sweep: Sweep, text: Callable[[Measured], str]) -> str:
    lengths = sweep.lengths
    rows = [
        [row.label, *(cost.cell_text(row.cells.get(length), text) for length in lengths)]
        for row in sweep.rows
    ]
    head = ["attention", *(f"{length:,}" for length in lengths)]
    return table(head, [[escape(cell) for cell in row] for row in rows], align_right=True)
