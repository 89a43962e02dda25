"""Markdown tables of the pages that the harness writes."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with padded columns; nothing in a cell ends it."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return tabulate(cells, headers=head, tablefmt="pipe", disable_numparse=True) + "\n"
