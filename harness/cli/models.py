"""The page of variants, made from docstrings, traits, certificates and costs."""

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from harness.records.certificate import Certificate
    from harness.records.cost import CostRecord
    from zoo.contract import Attention

TITLE = """\
# Variants

`harness list NAME` shows the options of a variant, [its certificate](certificates.md) the checks.

"""

HEAD = ("name", "mechanism", "paper", "cost in N", "causal", "recurrent", "mixes tokens")

CROSSOVERS = ("faster from", "smaller from")
"""More columns, where costs against the length were measured."""

PAPER = re.compile(
    r"(?P<authors>[A-Z][\w'-]+(?:, [A-Z][\w'-]+)*(?: et al\.)?), "
    r'(?:"(?P<title>[^"]+)", )?(?P<venue>[A-Z][\w ]*? )?(?P<year>\d{4}), arXiv (?P<arxiv>[\d.]*\d)'
)
"""A citation in the docstring of a variant's module: `Authors, "Title", venue year, arXiv id`.

Authors are family names, or the first one and "et al."; title and venue may be left out.
"""


def page(costs: "Iterable[CostRecord]", certificates: "Mapping[str, Certificate]") -> str:
    """The page as Markdown, with the crossovers of a sweep among `costs` and their caption."""
    from reports.markdown import escape_prose, table
    from reports.pages.cost import training_crossovers
    from reports.tables.values import NOTHING

    lines = [[escape_prose(cell) for cell in row] for row in rows(certificates)]
    crossovers = training_crossovers(costs)
    if crossovers is None:
        return TITLE + table(HEAD, lines)
    nothing = (NOTHING, NOTHING)
    # Markdown's escape does not change a name.
    lines = [[*line, *crossovers.texts.get(line[0], nothing)] for line in lines]
    return f"{TITLE}{table((*HEAD, *CROSSOVERS), lines)}\n{crossovers.caption}\n"


def rows(certificates: "Mapping[str, Certificate]") -> list[list[str]]:
    """The cells under `HEAD` of every variant of this package that has a certificate."""
    from zoo.variants import variants

    rows = []
    for name, variant in variants.built_in():
        if name in certificates:
            mixing = (one for one in certificates[name].results if one.check == "token mixing")
            mixes = next(mixing).detail.startswith("yes")
            claims = variant.traits.causal, variant.traits.recurrent, mixes
            rows.append([name, *described(name, variant).values(), *map(_yes, claims)])
    return rows


def paper_of(docstring: str, name: str) -> re.Match[str] | None:
    """The first citation in a docstring, on the line that begins with `name` if there is one."""
    line = re.search(rf"^ +{re.escape(name)} +(\S.*)$", docstring, re.MULTILINE)
    return PAPER.search(" ".join((line[1] if line else docstring).split()))


def described(name: str, variant: "type[Attention]") -> dict[str, str]:
    """The mechanism in one line, the paper and the cost of a variant, from its docstrings."""
    from zoo.variants import variants

    docstring = inspect.getdoc(inspect.getmodule(variant)) or variant.__doc__ or ""
    paper = paper_of(docstring, name)
    source = ""
    if paper:
        first, _, others = paper["authors"].partition(",")
        authors = f"{first} et al." if others else first
        source = f"{authors}, {paper['year']}, arXiv {paper['arxiv']}"
    quadratic = "O(N log N)" if re.search(r"Time O\([^.]*log n", docstring) else "O(N²)"
    cost = "O(N)" if variant.traits.linear else quadratic
    # The first line of a module of several variants describes none of them.
    shared = sum(other.__module__ == variant.__module__ for _, other in variants.items()) > 1
    title = (variant.__doc__ or "") if shared else docstring
    return {"mechanism": title.partition("\n")[0].rstrip("."), "paper": source, "cost": cost}


def formula_of(variant: "type[Attention]") -> str:
    """The first indented block of the docstring of a variant's module that has an equals sign."""
    docstring = inspect.getdoc(inspect.getmodule(variant)) or ""
    blocks = re.findall(r"(?:^ {4,}\S.*\n?(?:\n(?= {4}))?)+", docstring, re.MULTILINE)
    return next((inspect.cleandoc(block) for block in blocks if "=" in block), "")


def _yes(claim: bool) -> str:
    return "yes" if claim else "no"
