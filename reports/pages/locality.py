"""The page of locality studies as Markdown: a table for each."""

from collections.abc import Sequence

from reports.markdown import escape, table
from reports.pages.notes import used_marks
from reports.tables.locality import SHUFFLED, WINDOW, Study
from reports.tables.settings import recipe
from reports.tables.values import NOTHING, result_text

HEAD = f"""\
# Locality: score against the range of attention

Test score with its 95 % interval. *{WINDOW}*: every layer attends to that many tokens
on each side, or only before the token where the task is causal. *{SHUFFLED}*:
attention reaches all tokens of sequences whose blocks of that many tokens are in random order, in
training and in test. Where it is as accurate as with all tokens in order, the order of tokens
further apart than a block is not used.
"""

NO_BLOCKS = """\
No runs with shuffled blocks. Tasks with an answer per token have none, because shuffling would move
the target positions.
"""


def locality(studies: Sequence[Study]) -> str:
    """The page: a row for each number of tokens, a column for each curve."""
    parts = [HEAD]
    for study in studies:
        title, line = escape(study.title), escape(recipe(study.setting))
        parts += [f"## {title}\n", f"{line}\n", _table(study)]
        parts += [] if study.has_blocks else [NO_BLOCKS]
    page = "\n".join(parts)
    marks = used_marks(page)
    return f"{page}\n{marks}\n" if marks else page


def _table(study: Study) -> str:
    head = ["tokens", *(escape(curve.name) for curve in study.curves)]
    lines = [[label] for label in study.ticks.values()]
    for curve in study.curves:
        for line, tokens in zip(lines, study.ticks, strict=True):
            row = curve.rows.get(tokens)
            line.append(escape(result_text(row)) if row else NOTHING)
    for name, value in study.baselines:
        lines.append(
            [f"*{escape(name)}*", f"*{study.metric.text(value)}*", *[""] * (len(head) - 2)]
        )
    return table(head, lines, align_right=True)
