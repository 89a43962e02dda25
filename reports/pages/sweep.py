"""The page of sweeps as Markdown: the score against one option."""

from collections.abc import Callable, Sequence

from reports.markdown import escape, table
from reports.pages.notes import used_marks
from reports.tables.rows import Row
from reports.tables.settings import recipe
from reports.tables.sweep import Curve, Sweep, state_bytes
from reports.tables.values import NOTHING, result_text

INTRODUCTION = "{what} with its 95 % interval.\n"

STATE = """\
Memory of the state of decoding in bytes, of one sequence and all layers; for models of which all
layers are causal and recurrent.
"""


def sweep_page(sweeps: Sequence[Sweep]) -> str:
    """The page: a row for each variant, a column for each value."""
    parts = [f"# Results against {escape(sweeps[0].field)}\n"]
    for sweep in sweeps:
        parts += [f"## {escape(sweep.title)}\n", f"{escape(recipe(sweep.setting))}\n"]
        parts.append(INTRODUCTION.format(what=f"Test {sweep.metric.title}"))
        strongest = [own[0] if own else None for own in sweep.baselines.values()]
        texts = [
            f"*{sweep.metric.text(one[1])} {escape(one[0])}*" if one else NOTHING
            for one in strongest
        ]
        last = ["*strongest baseline*", *texts]
        parts.append(_table(sweep, sweep.curves, result_text, [last]))
        recurrent = [c for c in sweep.curves if any(map(_has_state, c.rows.values()))]
        parts += [STATE, _table(sweep, recurrent, _state)] if recurrent else []
    page = "\n".join(parts)
    marks = used_marks(page)
    return f"{page}\n{marks}\n" if marks else page


def _table(
    sweep: Sweep,
    curves: Sequence[Curve],
    text: Callable[[Row], str],
    last: Sequence[Sequence[str]] = (),
) -> str:
    lines = [
        [
            escape(curve.label),
            *(escape(text(curve.rows[v])) if v in curve.rows else NOTHING for v in sweep.values),
        ]
        for curve in curves
    ]
    head = [escape(sweep.field), *(escape(str(value)) for value in sweep.values)]
    return table(head, [*lines, *last], align_right=True)


def _has_state(row: Row) -> bool:
    return state_bytes(row) is not None


def _state(row: Row) -> str:
    size = state_bytes(row)
    return NOTHING if size is None else f"{size:,.0f}"
