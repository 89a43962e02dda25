"""Error messages of one line."""

import difflib
from collections.abc import Iterable
from pathlib import PurePath


class UserError(ValueError):
    """Invalid input. The message is one line that names the value, the rule and the remedy."""


MOST_NAMES = 12  # The most names that a message lists


def unknown(kind: str, name: str, valid: Iterable[str]) -> str:
    """The message for a `name` that is not in `valid`, with up to three similar ones."""
    if name.endswith(".py"):
        module = PurePath(name).stem
        return (
            f"{kind} {name!r} is a file; give a class in it, as MODULE:CLASS, here {module}:CLASS"
        )
    names = sorted(valid)
    similar = difflib.get_close_matches(name, names, n=3)
    if not similar and len(names) > MOST_NAMES:
        similar = difflib.get_close_matches(name, names, n=3, cutoff=0)
    near = " or ".join(map(repr, similar))
    listed = f"known: {', '.join(names)}" if names else "there is none"
    return f"unknown {kind} {name!r}; " + (f"did you mean {near}?" if near else listed)


def printable(text: str) -> str:
    r"""`text` on one line, each character that a terminal may obey or cannot show escaped."""
    # An escape character is shown as `\x1b`, a line break as `\n`.
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def in_one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
