"""The certificate page: what every variant claims, and what became of the claims when checked."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.markdown import table
from zoo.conformance import CHECKS, Result, Subject

PROVED, NOTHING = "✓", "–"

FIGURES = {
    "token mixing": "Does an output depend on another token, and how far away",
    "linear FLOPs": "Growth of the operations of variants that claim a linear cost",
    "constant-size state": "State of recurrent variants",
}
"""Checks whose figures stand on the page: they are the same on every machine."""

HEAD = """\
# Certificates

A row a variant that runs anywhere (`fla-*` run on CUDA alone), a column a kind of check. {proved}
says that every check of the kind that the variant's claims call for passed, in each of its forms;
{nothing} that it claims nothing of the kind; a number leads to a check that it fails and says so.
`harness check NAME` shows the figure behind each of them, `harness certify` makes this page.

"""


class Examined(NamedTuple):
    """A form of a variant, and what its checks found."""

    subject: Subject
    results: Sequence[Result]


def page(examined: Iterable[Examined]) -> str:
    """The whole page, as Markdown.

    Args:
        examined: every form of every variant, those of one variant behind one another.

    Raises:
        ValueError: a check fails that no gap declares, or passes where one does.
    """
    forms: dict[str, list[Examined]] = {}
    for one in examined:
        forms.setdefault(one.subject.name, []).append(one)
    expected_failures = _numbered(forms)
    groups = list(dict.fromkeys(check.group for check in CHECKS))
    rows = [
        [name, *(_cell(name, group, of, expected_failures) for group in groups)]
        for name, of in forms.items()
    ]
    parts = [HEAD.format(proved=PROVED, nothing=NOTHING), table(["attention", *groups], rows)]
    if expected_failures:
        lines = (
            f"{number}. {name}, {check}: {why}\n"
            for (name, check, why), number in expected_failures
        )
        parts.append("\n## Checks that a variant fails, and says so\n\n" + "".join(lines))
    for check, title in FIGURES.items():
        parts.append(f"\n## {title}\n\n" + _figures(check, forms))
    return "".join(parts)


Gaps = Sequence[tuple[tuple[str, str, str], int]]


def _numbered(forms: dict[str, list[Examined]]) -> Gaps:
    """Name, check and reason of every declared gap, each once, with its number."""
    found = dict.fromkeys(
        (name, result.check, result.gap)
        for name, of in forms.items()
        for one in of
        for result in one.results
        if result.gap
    )
    return [(gap, number) for number, gap in enumerate(found, 1)]


def _cell(name: str, group: str, forms: Sequence[Examined], expected_failures: Gaps) -> str:
    members = {check.name for check in CHECKS if check.group == group}
    found = [result for one in forms for result in one.results if result.check in members]
    if not found:
        return NOTHING
    if failed := [result.check for result in found if not result.passed]:
        raise ValueError(f"{name} fails {failed[0]!r} without declaring it; nothing is certified")
    numbers = [
        str(number)
        for (of, check, _), number in expected_failures
        if of == name and check in members
    ]
    return ", ".join(numbers) or PROVED


def _figures(check: str, forms: dict[str, list[Examined]]) -> str:
    rows = [
        [one.subject.form, result.finding.figure]
        for of in forms.values()
        for one in of
        for result in one.results
        if result.check == check
    ]
    return table(["attention", "found"], rows)
