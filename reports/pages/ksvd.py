"""The page of KSVD in training as Markdown: a table for each input, trained part and trace."""

from collections.abc import Callable, Sequence

from harness.records.ksvd import KsvdCurve, KsvdState
from reports.markdown import escape, table
from reports.tables.ksvd import Group, Line, alignment, groups, square
from reports.tables.values import NOTHING, number

HEAD = """\
# Does training approach the kernel SVD?

A layer of Primal-Attention is trained on a fixed input, or taken from a run at each kept step.
*ksvd* minimises the KSVD loss eta J² alone, *task* the squared error to the output of a layer of
softmax on the same tokens (eta = 0), *task+ksvd* both, and *reconstruction*, a control, the part of
the kernel matrix K outside the subspaces that the scores span. *Alignment*: the mean squared cosine
of the principal angles between the span of the scores and the exact first s left or right singular
vectors of K, mean of both sides. 1 is the exact solution, and *random* the expectation for a
uniformly random subspace of the span of the features. Task loss: 1 is that of the best constant
output. Means over the seeds, in brackets the smallest and the largest.
Statements 24 and 25 of docs/primal.md say what the curves in the folder results/ show.
"""


def ksvd(curves: Sequence[KsvdCurve]) -> str:
    """The page."""
    return "\n".join([HEAD, *(part for group in groups(curves) for part in _section(group))])


def _section(group: Group) -> list[str]:
    one = group.first
    head = ["loss", "seeds", "steps", "J², start", "J², end", "alignment, start",
            "alignment, end", "task loss, end"]  # fmt: skip
    setting = (
        f"Samples: {one.samples}, tokens: {one.tokens}, heads: {one.heads}, head width: "
        f"{one.width}, rank: {one.rank}; alignment, random: {number(one.random)}.\n"
    )
    rows = [_row(line) for line in group.lines]
    return [f"## {escape(group.title)}\n", setting, table(head, rows, align_right=True)]


def _row(line: Line) -> list[str]:
    first, last = line.steps[0], line.steps[-1]

    def cell(step: int, value: Callable[[KsvdState], float]) -> str:
        mean, low, high = (number(one) for one in line.at(step, value))
        return mean if len(line.curves) == 1 else f"{mean} [{low}, {high}]"

    tasks = [state.task for curve in line.curves for state in curve.states if state.step == last]
    known = [task for task in tasks if task is not None]
    return [
        line.loss, str(len(line.curves)), f"{last:,}", cell(first, square), cell(last, square),
        cell(first, alignment), cell(last, alignment),
        number(sum(known) / len(known)) if known else NOTHING,
    ]  # fmt: skip
