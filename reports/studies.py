"""The files of a study: its page, its table and its figure."""

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports.markdown import escape, table
from reports.text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reports.figures.style import Panel

Sections = Iterable[tuple[str, pd.DataFrame, str]]
HEIGHT = 3.5  # Inches of a panel


def study_files(
    name: str, head: str, sections: Sections, panels: "Sequence[Panel]", frame: pd.DataFrame
) -> dict[str, bytes]:
    from reports.figures import style

    blocks = [head]
    for title, lines, text in sections:
        rows = [[*map(_cell, row)] for row in lines.itertuples(index=False)]
        blocks += [f"## {escape(title)}\n", *([f"{escape(text)}\n"] if text else [])]
        blocks.append(table([*map(escape, map(str, lines))], rows, align_right=True))
    page = "\n".join(blocks).encode()
    return {f"{name}.md": page, **style.table_with_images(name, frame, _draw, panels)}


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        mean, low, high = map(number, value)
        return f"{mean} [{low}, {high}]"
    if isinstance(value, str):
        return escape(value)
    return f"{value:,}" if isinstance(value, Integral) else number(value)


def _draw(panels: "Sequence[Panel]") -> "Figure":
    from reports.figures import style

    figure = style.draw_panels(panels, HEIGHT)
    for panel in figure.axes:
        handles, labels = panel.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            handle.set_label(style.label(label))
        style.legend(panel, handles)
    return figure
