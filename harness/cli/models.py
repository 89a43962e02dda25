"""The table of models of a README, made from docstrings, traits and a conformance check."""

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.records.cost import CostRecord
    from zoo.contract import Attention

MARK = "models"
"""Name of the two comments in a page between which the table is written."""

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


def models_table(costs: "Iterable[CostRecord]") -> str:
    """The table as Markdown, with the crossovers of a sweep among `costs` and their caption."""
    from reports.markdown import escape_prose, table
    from reports.pages.cost import training_crossovers
    from reports.tables.values import NOTHING

    lines = [[escape_prose(cell) for cell in row] for row in rows()]
    crossovers = training_crossovers(costs)
    if crossovers is None:
        return table(HEAD, lines)
    nothing = (NOTHING, NOTHING)
    # Markdown's escape does not change a name.
    lines = [[*line, *crossovers.texts.get(line[0], nothing)] for line in lines]
    return f"{table((*HEAD, *CROSSOVERS), lines)}\n{crossovers.caption}\n"


def rows() -> list[list[str]]:
    """The cells of every variant under `HEAD`, without plug-ins and what cannot be checked here."""
    from zoo.conformance import CHECKS, configurations, run
    from zoo.variants import variants

    mixing = next(check for check in CHECKS if check.name == "token mixing")
    rows = []
    for name, variant in variants.built_in():
        if not variant.unchecked:
            mixes = run(mixing, configurations(name, variant)[0]).detail.startswith("yes")
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
