"""The page of a reproduced table of costs as Markdown."""

from collections.abc import Callable, Sequence

from reports.markdown import escape, table
from reports.tables.boards import machine
from reports.tables.reproduction import (
    MEMORY,
    SDPA,
    TIME,
    Entry,
    by_attention,
    entry_text,
    label,
    tasks_of,
)
from reports.tables.values import NOTHING, number

HEAD = """\
# Chen et al. 2023 (arXiv 2305.19798), Table 3: cost of a training step

Training steps at the shapes of budget `{budget}`, measured on {machine}, in {precision}. Budget
`paper` has the shapes of the published runs; published figures were measured by others, on another
device. *Naive* is softmax by its formula, which stores all weights; *SDPA* is
`torch.nn.functional.scaled_dot_product_attention`, which alternates with every row. A ratio to
naive is that of two ratios to SDPA. Peak memory is what one step allocates in addition to what was
allocated before it, in GB of 10^9 bytes. Sequences are random tokens of full length, for which no
data are needed; both documents of an example of Retrieval are in the batch.
"""

DIFFERENCES = """\
All published figures differ from those here in the device, in precision (mixed, fp32 inside
attention), and in that evaluation is inside the timed loop.
"""

UNPUBLISHED = """\
Published figures belong to budget `paper`: those of other shapes are not shown.
"""

WHY = {
    "softmax": "The published softmax is hand-written in fp32 and gradient-checkpointed: it "
    "computes its weights again in the backward pass, which the other published rows do not. Here "
    "they are computed once and stored.",
    SDPA: "SDPA softmax stores no weights and is no row of the published table.",
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


def reproduction(entries: Sequence[Entry], budget: str) -> str:
    """The page: time, memory, ratios, and a sentence for each row."""
    record = entries[0].record
    head = HEAD.format(
        budget=escape(budget), machine=escape(machine(record)), precision=record.spec.precision
    )
    return "\n".join(
        [
            head,
            DIFFERENCES if any(entry.source for entry in entries) else UNPUBLISHED,
            "## Seconds per 1,000 steps\n",
            _pairs(entries, lambda e: e.time, lambda e: e.published(TIME)),
            "## Peak memory in GB\n",
            _pairs(entries, lambda e: e.memory, lambda e: e.published(MEMORY)),
            "## Time over that of naive softmax\n",
            _pairs(entries, lambda e: e.time_over_naive, lambda e: e.published_over_softmax(TIME)),
            "## Memory over that of naive softmax\n",
            _pairs(
                entries, lambda e: e.memory_over_naive, lambda e: e.published_over_softmax(MEMORY)
            ),
            "## Time over that of the fastest softmax, memory over that of SDPA softmax\n",
            _own(entries),
            "## Where and why they differ\n",
            *(f"- {escape(sentence)}" for sentence in sentences(entries)),
            "",
            *_failures(entries),
        ]
    )


Value = Callable[[Entry], float | None]


def _pairs(entries: Sequence[Entry], own: Value, others: Value) -> str:
    """For each task a column of measured and one of published values."""
    head = ["attention"]
    for task in tasks_of(entries):
        name = escape(task.partition("@")[0])
        head += [f"{name}, here", f"{name}, published"]
    lines = []
    for attention, row in by_attention(entries).items():
        lines.append([escape(label(attention))])
        for entry in row.values():
            printed = others(entry)
            lines[-1] += [
                escape(entry_text(entry, own(entry))),
                number(printed) if printed else NOTHING,
            ]
    return table(head, lines, align_right=True)


def _own(entries: Sequence[Entry]) -> str:
    """For each task a column of time and one of memory, over the fastest and over SDPA softmax."""
    head = ["attention"]
    for task in tasks_of(entries):
        name = escape(task.partition("@")[0])
        head += [f"{name}, time", f"{name}, memory"]
    lines = []
    for attention, row in by_attention(entries).items():
        lines.append([escape(label(attention))])
        for entry in row.values():
            for value in (entry.time_over_fastest, entry.memory_over_sdpa):
                lines[-1].append(escape(entry_text(entry, value)))
    return table(head, lines, align_right=True)


def sentences(entries: Sequence[Entry]) -> list[str]:
    """For each row, how far its figures are from the published ones, and what is known of why."""
    made = []
    for attention, row in by_attention(entries).items():
        parts = [
            _span("time", [_over(e.time, e.published(TIME)) for e in row.values()]),
            _span("memory", [_over(e.memory, e.published(MEMORY)) for e in row.values()]),
        ]
        parts = [part for part in parts if part]
        compared = f"{' and '.join(parts)} the published one. " if parts else ""
        known = WHY.get(attention, "Nothing is known of a published implementation.")
        made.append(f"{label(attention)}: {compared}{known}")
    return made


def _over(own: float | None, other: float | None) -> float | None:
    return own / other if own and other else None


def _span(what: str, ratios: Sequence[float | None]) -> str:
    given = sorted(ratio for ratio in ratios if ratio)
    if not given:
        return ""
    low, high = number(given[0]), number(given[-1])
    return f"{what} is {low if low == high else f'{low} to {high}'} times"


def _failures(entries: Sequence[Entry]) -> list[str]:
    """Why cells have no value: a line for each."""
    reasons = [
        f"{label(e.attention)}, {e.task}: {e.record.status.replace('_', ' ')}: {e.record.reason}"
        for e in entries
        if e.record.status != "ok"
    ]
    reasons += [
        f"{label(e.attention)}, {e.task}: no ratio: {e.record.measured.no_ratio}"
        for e in entries
        if e.record.measured and e.record.measured.no_ratio
    ]
    return ["## Cells without a value\n", *(f"- {escape(one)}" for one in reasons), ""] * bool(
        reasons
    )
