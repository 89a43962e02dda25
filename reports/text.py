"""Texts from records: any characters may occur in them, so nothing is printed without `plain`."""


def plain(text: str, limit: int | None = None) -> str:
    """`text` on one line, with U+FFFD for each character that cannot be printed.

    A text of more than `limit` characters ends with an ellipsis.
    """
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def csv_cell(value: object) -> object:
    """`value` as a cell of CSV: no text is a formula to a spreadsheet, and None is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
