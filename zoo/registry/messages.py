"""Words for what goes wrong, in one line."""

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The message is one line that names the value, the rule and the remedy."""


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Say in one line that `name` is not a known `kind`, offering the nearest of `known`."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    listed = f"known: {', '.join(known)}" if known else "there is none at all"
    hint = f"did you mean {near[0]!r}?" if near else listed
    return f"unknown {kind} {name!r}; {hint}"


def in_one_line(error: BaseException) -> str:
    """An error's type and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a report of one line."""
    return (str(error).splitlines() or [""])[0]
