"""The figure of approximations of softmax: the error of the output against the length."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from harness.records.approximation import Approximation
from reports.figures import style
from reports.tables.approximation import label

WIDTH, HEIGHT = 6.8, 3.5
"""Inches of a panel with its legend."""


def approximation_figure(all_errors: Sequence[Approximation], source: str) -> dict[str, bytes]:
    """The figure as PNG and SVG, by file name; `source` becomes their description."""
    with mpl.rc_context(style.STYLE):
        return style.save(draw(all_errors), "approximation", source)


def draw(all_errors: Sequence[Approximation]) -> Figure:
    """A panel for each kind of input, up to `MOST_PANELS`; a line for each variant and logits."""
    kinds = list(dict.fromkeys(one.inputs for one in all_errors))[: style.MOST_PANELS]
    figure, axes = style.panels([HEIGHT] * len(kinds), WIDTH, 0)
    for panel, kind in zip(axes, kinds, strict=True):
        style.heading(panel, kind)
        lines: dict[str, list[Approximation]] = {}
        for one in all_errors:
            if one.inputs == kind:
                lines.setdefault(f"{label(one)}, logits {one.logits:.2g}", []).append(one)
        handles = []
        for slot, (name, points) in enumerate([*lines.items()][: style.SLOTS]):
            colour, marker = style.style_of(slot)
            x, y = [one.length for one in points], [one.output for one in points]
            handles += panel.plot(x, y, color=colour, marker=marker, label=style.label(name))
        panel.axhline(1, color=style.GREY, linewidth=1, linestyle=style.DASHES[0])
        panel.set_xscale("log", base=2)
        panel.set_xticks(sorted({one.length for one in all_errors if one.inputs == kind}))
        panel.xaxis.set_minor_locator(NullLocator())
        # The default formatter writes powers as formulas, which are not parsed.
        panel.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:,.0f}"))
        panel.set(xlabel="tokens", ylabel="error of the output", ylim=(0, None))
        style.legend(panel, handles)
    return figure
