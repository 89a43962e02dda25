"""What the words of the command line mean."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.plan import Plan


def words(*texts: str) -> list[str]:
    """Split at commas, each word once, in order.

    Raises:
        UserError: a word is empty.
    """
    found: dict[str, None] = {}
    for text in texts:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise UserError(f"{text!r} holds an empty name; separate names by single commas")
        found |= dict.fromkeys(words)
    return list(found)


def seeds(text: str) -> list[int]:
    """Read whole numbers between commas.

    Raises:
        UserError: one is no whole number, or is not in 0..2**32 - 1.
    """
    example = "0,1,2"
    found = _whole_numbers(f"seeds {text!r}", text, example)
    if not 0 <= min(found) <= max(found) < 2**32:
        raise UserError(
            f"seeds {text!r} leave the range from 0 to 2**32 - 1; give for example {example}"
        )
    return found


def windows(text: str) -> list[int]:
    """Read whole numbers from 1 on between commas.

    Raises:
        UserError: one is no whole number, or is below 1.
    """
    example = "8,32,128"
    found = _whole_numbers(f"windows {text!r}", text, example)
    if min(found) < 1:
        raise UserError(f"windows {text!r} hold a number below 1; give for example {example}")
    return found


def settings(given: Sequence[str]) -> dict[str, dict[str, str]]:
    """Read NAME.OPTION=VALUE texts: the values, by name and option.

    Raises:
        UserError: a text has another form, or an option is given two values.
    """
    found: dict[str, dict[str, str]] = {}
    for text in given:
        path, equals, value = text.partition("=")
        owner, dot, option = path.partition(".")
        if not (owner and dot and option and equals and value):
            raise UserError(
                f"--set {text!r} is not of the form NAME.OPTION=VALUE; give for example "
                "primal.rank=40"
            )
        if found.setdefault(owner, {}).setdefault(option, value) != value:
            raise UserError(
                f"--set gives {path} two values, {found[owner][option]} and {value}; give one"
            )
    return found


def require_owners(settings: dict[str, dict[str, str]], plans: "Sequence[Plan]") -> None:
    """Refuse a setting whose owner takes no part in any run: it would have no effect.

    Raises:
        UserError: there is one.
    """
    parts = {"model", "train"}
    parts |= {part for one in plans for part in (one.spec.task.name, *one.composition.names)}
    for owner in settings.keys() - parts:
        raise UserError(
            f"--set {owner}: {owner!r} takes no part; those that do: {', '.join(sorted(parts))}"
        )


def _whole_numbers(what: str, text: str, example: str) -> list[int]:
    """Read `text`, which a message calls `what`."""
    try:
        return [int(word) for word in words(text)]
    except ValueError:
        raise UserError(f"{what} are not whole numbers; give for example {example}") from None
