"""The page of locality studies as Markdown: a table for each."""

from collections.abc import Sequence

from reports.markdown import escape, table
from reports.pages.leaderboard import baseline_lines
from reports.pages.notes import used_marks
from reports.tables.columns import NOTHING, accuracy
from reports.tables.locality import SHUFFLED, WINDOW, Curve, Study
from reports.tables.settings import recipe

HEAD = f"""\
# Locality: accuracy against the reach of attention

Test accuracy in percent with its 95 % interval. *{WINDOW}*: every layer attends to that many tokens
on each side, or only before the token where the task is causal. *{SHUFFLED}*: attention reaches all
tokens of sequences whose blocks of that many tokens are in random order, in training and in test.
Where the second is as high as with all tokens in order, no order beyond the block is used.
"""

NO_BLOCKS = """\
No runs with shuffled blocks. Tasks with an answer per token have none, because shuffling would move
the target positions.
"""

ALL = "all"
"""The tick behind the last number of tokens."""


def locality(found: Sequence[Study]) -> str:
    """The page: a row for each number of tokens, a column for each curve."""
    parts = [HEAD]
    for study in found:
        title, line = escape(study.title), escape(recipe(study.setting))
        parts += [f"## {title}\n", f"{line}\n", _table(study)]
        parts += [] if study.has_blocks else [NO_BLOCKS]
    page = "\n".join(parts)
    marks = used_marks(page)
    return f"{page}\n{marks}\n" if marks else page


def _table(study: Study) -> str:
    lines = [
        [str(tokens), *(_cell(curve, tokens) for curve in study.curves)] for tokens in study.tokens
    ]
    lines.append([ALL, *(_cell(curve, None) for curve in study.curves)])
    head = ["tokens", *(escape(curve.name) for curve in study.curves)]
    lines += baseline_lines(study.baselines, len(head))
    return table(head, lines, align_right=True)


def _cell(curve: Curve, tokens: int | None) -> str:
    row = curve.full if tokens is None else curve.rows.get(tokens)
    return escape(accuracy(row)) if row else NOTHING
