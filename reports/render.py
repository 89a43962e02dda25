"""Renders the templates of pages: their prose is in `reports/templates`."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.markdown import escape, table
from reports.text import NOTHING, number, whole_text


def rendered(template: str, **values: Any) -> str:
    """A template of `reports/templates` with values; a name that it lacks is an error.

    Filters: `md` escapes a text for Markdown, `number` and `whole` write a number or a dash; the
    function `table` makes a table of Markdown, and `nothing` is the dash.
    """
    environment = Environment(
        loader=PackageLoader("reports"), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"md": escape, "number": number, "whole": whole_text}
    environment.globals |= {"table": table, "nothing": NOTHING}
    return environment.get_template(template).render(**values)


def memory_of(operation: str) -> str:
    """The name of the memory of a pass: the peak of a call, in decoding with the state."""
    return "decoding memory" if operation == "decode" else "peak memory"
