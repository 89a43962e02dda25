"""Writes pages: templates, tables and escaped texts of Markdown, parts between two marks."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from reports.text import NOTHING, number, plain, ratio_text, whole_text

# The characters that are escaped wherever they occur.
ESCAPES = str.maketrans({
    **{character: f"\\{character}" for character in "\\`*~$"},
    # Entities, so that neither HTML, a comment nor a table cell begins or ends.
    "&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;",
})  # fmt: skip


def escape(text: str) -> str:
    # It can be used in a paragraph, a heading, a list or a table cell. Underscores within a word
    # (`max_len`) and ordinary words, numbers and sentences are not changed.
    line = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", plain(text).translate(ESCAPES))
    # A "]" can end a link or an image only before "(", "[" or ":": not in `listops@1[max_len=64]`.
    line = re.sub(r"\](?=[(\[:])", r"\\]", line)
    # At the beginning of a line these would begin a heading, a list, a rule or a check box.
    line = re.sub(r"^(?=[#+=\[-])", r"\\", line)
    return re.sub(r"^(\d+)([.)])(?=\s|$)", r"\1\\\2", line)


def escape_prose(text: str) -> str:
    return escape(text).replace("\\`", "`")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, align_right: bool = False) -> str:
    # `align_right` aligns all columns but the first to the right, as numbers are.
    rule = ["---"] + ["--:" if align_right else "---"] * (len(head) - 1)
    lines = (map(_cell, line) for line in (head, rule, *rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(cell: str) -> str:
    # A "|" behind an even number of backslashes is not escaped yet.
    return re.sub(r"(?<!\\)((?:\\\\)*)\|", r"\1\\|", " ".join(cell.split()))


def insert(page: str, mark: str, content: str) -> str:
    start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
    lines = page.splitlines(keepends=True)
    marks = {i: line.strip() for i, line in enumerate(lines) if line.strip() in (start, end)}
    if [*marks.values()] != [start, end]:
        raise ValueError(f"the page needs the lines {start} and {end}, once each and in this order")
    first, last = marks
    # A comment in the content could be read as a mark at the next call.
    body = content.strip("\n").replace("<!--", "&lt;!--")
    return "".join([*lines[: first + 1], f"\n{body}\n\n" if body else "\n", *lines[last:]])


def rendered(template: str, **values: Any) -> str:
    # `md` escapes a text for Markdown, `note` makes a paragraph of a text that is not empty.
    environment = Environment(
        loader=PackageLoader("reports"), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "md": escape, "number": number, "ratio": ratio_text, "whole": whole_text,
    }  # fmt: skip
    environment.filters["note"] = lambda text: f"{escape(text)}\n\n" if text else ""
    environment.globals |= {"table": table, "nothing": NOTHING}
    return environment.get_template(template).render(**values)


def memory_of(operation: str) -> str:
    return "decoding memory" if operation == "decode" else "peak memory"
