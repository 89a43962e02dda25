"""The files of a study: its page, its table and its figure."""

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import pandas as pd

from reports.markdown import escape, table
from reports.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Panels = Sequence[tuple[str, Callable[[Axes], object], int]]

Sections = Iterable[tuple[str, pd.DataFrame, str]]

HEIGHT = 3.5
"""Inches of a panel."""


def study_files(
    name: str, head: str, sections: Sections, panels: "Panels", frame: pd.DataFrame
) -> dict[str, bytes]:
    """What `NAME.md`, `.csv`, `.png` and `.svg` hold, by name.

    Args:
        name: of the study.
        head: the beginning of the page, in Markdown.
        sections: of the page: a heading, a table whose cells are texts, numbers, or a mean with its
            smallest and its largest value, and plain text.
        panels: of the figure: a title, a function that draws, and lines of the legend.
        frame: the rows.
    """
    from reports.figures import style

    page = _page(head, sections).encode()
    return {f"{name}.md": page, **style.table_with_images(name, frame, _draw, panels)}


def _page(head: str, sections: Sections) -> str:
    parts = [head]
    for title, frame, text in sections:
        rows = [[*map(_cell, row)] for row in frame.itertuples(index=False)]
        parts += [f"## {escape(title)}\n", *([f"{escape(text)}\n"] if text else [])]
        parts.append(table([*map(escape, map(str, frame))], rows, align_right=True))
    return "\n".join(parts)


def _cell(value: Any) -> str:
    if isinstance(value, tuple):
        mean, low, high = map(number, value)
        return f"{mean} [{low}, {high}]"
    if isinstance(value, str):
        return escape(value)
    return f"{value:,}" if isinstance(value, Integral) else number(value)


def _draw(panels: "Panels") -> "Figure":
    from reports.figures import style

    shown = panels[: style.MOST_PANELS]
    heights = [max(HEIGHT, 1 + style.LINE_HEIGHT * entries) for *_, entries in shown]
    figure, axes = style.panels(heights)
    for panel, (title, draw, _) in zip(axes, shown, strict=True):
        style.heading(panel, title)
        draw(panel)
        handles, labels = panel.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            handle.set_label(style.label(label))
        style.legend(panel, handles)
    return figure
