"""Markdown tables of the pages that the harness writes."""

from collections.abc import Iterable, Sequence

from tabulate import tabulate


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with padded columns, its cells as they are given."""
    return tabulate(rows, headers=head, tablefmt="pipe", disable_numparse=True) + "\n"
