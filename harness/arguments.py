"""Options that commands share, and parsers of options: a wrong value is a `UserError`."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from zoo.registry import UserError, entry_points

MOST = 10_000  # The most integers of a list
LONGEST = 2**24  # The most tokens of a sample, and the largest width
LENGTHS = "256:16384 or 1000,2k"  # An example of lengths
LONGEST_NAME = 4096  # The most characters of a name, as of a path
CLASS = re.compile(r"[\w.]+:\w+")  # MODULE:CLASS, also as a part of a composition


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Options that training and measuring share.

    Attributes:
        attention: A, A+B, MODULE:CLASS, or A,B,...; repeatable.
        set_: NAME.OPTION=VALUE; NAME is a variant, a task, train or model; repeatable.
        precision: auto, bf16 or fp32; auto is fp32 on a CPU and bf16 on CUDA.
        device: auto, cpu or cuda.
        rerun: Repeat what is finished, from the beginning.
        keep_outdated: Use finished runs and costs of earlier code or checks as they are; by default
            they are repeated.
    """

    attention: list[str] | None = None
    set_: list[str] | None = None
    precision: str = "auto"
    device: str = "auto"
    rerun: bool = False
    keep_outdated: bool = False
    store: Path = Path("runs")


def split(text: str) -> list[str]:
    # Not in brackets: delta[negative=True,steps=2] is one name. Unlimited, the time is quadratic.
    inside = rf"(?![^\[(]{{0,{LONGEST_NAME}}}[\])])"
    return [name.strip() for name in re.split(f",{inside}", text)]


def names_in(texts: Sequence[str]) -> list[str]:
    names: dict[str, None] = {}
    for text in texts:
        found = split(text)
        if not all(found):
            raise UserError(f"{text!r} holds an empty name; separate names by single commas")
        if any(len(name) > LONGEST_NAME for name in found):
            raise UserError(
                f"{text[:40]!r}... has a name of over {LONGEST_NAME} characters; shorten it"
            )
        names |= dict.fromkeys(found)
    return list(names)


def attentions_in(texts: Sequence[str]) -> list[str]:
    return registered(names_in(texts))


def registered(names: Sequence[str]) -> list[str]:
    # Registers the class at MODULE:CLASS as a variant with the name of the class.
    for whole, part in [(name, part) for name in names for part in name.split("+")]:
        plain = part.partition("[")[0]
        if ":" in plain != part:
            remedy = f"--attention {whole.replace(part, plain)} --set {plain.rpartition(':')[2]}"
            raise UserError(
                f"{part!r} has options in brackets, which a class has not; set them by: "
                f"{remedy}.OPTION=VALUE"
            )
    return rows_in(names)


def rows_in(names: Sequence[str]) -> list[str]:
    # As Mine[rank=8] for MODULE:Mine[rank=8].
    return [CLASS.sub(lambda found: _named("zoo.variants:variants", found[0]), n) for n in names]


def tasks_in(names: Sequence[str]) -> list[str]:
    return [_named("tasks.registry:tasks", n) if CLASS.fullmatch(n) else n for n in names]


def _named(registry: str, at: str) -> str:
    # An installed command does not search the current folder.
    if "" not in sys.path:
        sys.path.insert(0, "")
    return resolve_name(registry).name_class(at)


def span(text: str) -> range:
    # `7`, or `0-4`, which includes both ends.
    first, _, last = text.partition("-")
    if not (first and last):
        return range(number := int(text), number + 1)
    if int(first) > int(last):
        raise UserError(f"{text!r} ends before it begins; give {last}-{first}")
    return range(int(first), int(last) + 1)


def tokens(text: str) -> tuple[int]:
    # `1000` or `16k`, where k is 1,024.
    thousands = re.fullmatch(r"(\d+)[kK]", text)
    return (1024 * int(thousands[1]) if thousands else int(text),)


def integers_in(
    what: str, text: str, allowed: range, example: str,
    read: Callable[[str], Iterable[int]] = tokens,
) -> list[int]:  # fmt: skip
    # `read` reads a part between commas; messages contain `what` and `example`.
    try:
        every = chain.from_iterable(map(read, names_in([text])))
        numbers = list(dict.fromkeys(islice(every, MOST + 1)))
    except UserError as error:
        raise UserError(f"{what} {error}") from None
    except ValueError:
        raise UserError(
            f"{what} {text!r} are not all whole numbers; give for example {example}"
        ) from None
    if len(numbers) > MOST:
        raise UserError(f"{what} {text!r} are more than {MOST:,}; give fewer, as {example}")
    if any(number not in allowed for number in numbers):
        raise UserError(
            f"{what} {text!r} are not all from {allowed.start} to {allowed.stop - 1}; give for "
            f"example {example}"
        )
    return numbers


def seeds_in(text: str, allowed: range = range(2**32)) -> list[int]:
    return integers_in("seeds", text, allowed, "0,1,2 or 0-4", span)


def values_in(option: str, texts: Sequence[str] | None) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for owner, name, text in _assignments(option, texts, "VALUE,VALUE", "train.lr=5e-4,1e-3,2e-3"):
        if (field := f"{owner}.{name}") in values:
            raise UserError(f"{option} gives {field} twice; give all of its values at once")
        values[field] = names_in([text])
    return values


def settings_of(texts: Sequence[str] | None) -> dict[str, dict[str, str]]:
    settings: dict[str, dict[str, str]] = {}
    for owner, name, value in _assignments("--set", texts, "VALUE", "primal.rank=40"):
        first = settings.setdefault(owner, {}).setdefault(name, value)
        if first != value:
            raise UserError(f"--set gives {owner}.{name} two values, {first} and {value}; give one")
    return settings


def _assignments(
    option: str, texts: Sequence[str] | None, values: str, example: str
) -> Iterator[tuple[str, str, str]]:
    for text in texts or ():
        field, _, value = text.partition("=")
        if found := CLASS.match(field):  # options are by the name of the class
            points = [*entry_points("zoo.variants"), *entry_points("tasks.tasks")]
            name = found[0].rpartition(":")[2]
            name = next((point.name for point in points if point.value == found[0]), name)
            field = field.replace(found[0], name, 1)
        owner, _, name = field.partition(".")
        if not (owner and name and value):
            raise UserError(
                f"{option} {text!r} is not of the form NAME.OPTION={values}; give for example "
                f"{example}"
            )
        yield owner, name, value


def meanings(factory: Callable[..., Any]) -> dict[str, str]:
    # From entries of a section, `name: text`, or a first line that starts with a name.
    texts: dict[str, str] = {}
    for owner in reversed(getattr(factory, "__mro__", (factory,))):
        for documented in (owner, vars(owner).get("__init__")):
            docstring = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
            found = re.findall(r"^ {4}(\w[\w, ]*): (.+(?:\n {8}.+)*)", docstring, re.MULTILINE)
            found += re.findall(r"\A`(\w+)`: (.+)", docstring)
            for names, text in found:
                texts |= dict.fromkeys(names.split(", "), " ".join(text.split()).rstrip("."))
    return texts


def lengths_in(text: str) -> list[int]:
    # `FIRST:LAST` by doubling, or lengths separated by commas.
    span = re.fullmatch(r"(\w+):(\w+)", text)
    listed = ",".join(span.groups()) if span else text
    numbers = integers_in("lengths", listed, range(1, LONGEST + 1), LENGTHS)
    if span is None:
        return numbers
    first, last = numbers[0], numbers[-1]
    if last < first:
        raise UserError(f"lengths {text!r} end before they begin; give for example {LENGTHS}")
    return [first << n for n in range((last // first).bit_length())]
