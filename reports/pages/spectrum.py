"""The page of spectra of attention matrices as Markdown: a table for each setting."""

from collections.abc import Sequence

from reports.markdown import escape, table
from reports.tables.spectrum import Group, Line
from reports.tables.values import NOTHING

SHARES = (0.5, 0.9, 0.99)

HEAD = """\
# Spectra of attention matrices

The attention matrix of a head is what it multiplies by: the weights of softmax, the product of the
features for a linear attention, and the kernel Phi_q Phi_k^T for Primal-Attention. *Rank of 90 %*
is the smallest number of singular values whose squares sum to 90 % of all; the effective rank is
exp(H), H the entropy of the singular values as shares of their sum. Both are after training, on
examples of dev: the mean over heads and samples, with the standard deviation over the samples.
*At first* is the effective rank at the first step that the run kept.
"""


def spectrum_page(groups: Sequence[Group]) -> str:
    """The page: a row for each layer of each run."""
    parts = [HEAD]
    for group in groups:
        head = ["run", "variant", *(f"rank of {100 * share:g} %" for share in SHARES),
                "effective rank", "at first", "steps"]  # fmt: skip
        rows = [[escape(group.label(line)), *_cells(line)] for line in group.lines]
        parts += [f"## {escape(group.title)}\n", table(head, rows, align_right=True)]
    reasons = [line.last.reason for group in groups for line in group.lines]
    parts += [f"- {escape(reason)}" for reason in dict.fromkeys(reasons) if reason]
    return "\n".join(parts).rstrip("\n") + "\n"


def _cells(line: Line) -> list[str]:
    last, first, variant = line.last, line.layers[0], escape(line.last.variant)
    if last.effective_rank is None or first.effective_rank is None:
        return [variant, *[NOTHING] * (len(SHARES) + 3)]
    spread = last.effective_rank_deviation
    return [
        variant,
        *(str(line.rank_of(share)) for share in SHARES),
        f"{last.effective_rank:.1f} ± {spread:.1f}",
        f"{first.effective_rank:.1f}",
        str(line.steps[-1]),
    ]
