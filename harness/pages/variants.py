"""The page docs/variants.md: every variant with its claims, and its crossovers with softmax."""

from collections.abc import Mapping

import pandas as pd

from harness.catalogue import summary
from harness.records.certificate import Certificate
from reports import cost
from reports.markdown import escape_prose, rendered
from reports.text import NOTHING
from zoo.variants import variants

HEAD = ("name", "mechanism", "paper", "cost in N", "causal", "recurrent", "mixes tokens")
"""The columns of the page of variants, which has more where costs were measured."""


def page(costs: pd.DataFrame, certificates: Mapping[str, Certificate]) -> str:
    """The page of variants as Markdown, with the crossovers of a sweep among `costs`."""
    (crossovers, setting), lines, head = training_crossovers(costs), rows(certificates), HEAD
    if setting:
        head = (*HEAD, "faster from", "smaller from")
        lines = [[*line, *crossovers.get(line[0], (NOTHING, NOTHING))] for line in lines]
    return rendered("variants.md.j2", head=head, rows=lines, setting=setting)


def training_crossovers(costs: pd.DataFrame) -> tuple[dict[str, list[str]], str]:
    """The length from which training a layer costs less than softmax, in the largest sweep.

    By variant the length for time and the one for memory, of its fastest row; and the setting.
    """
    trained = costs.query("`pass` == 'train' and level == 'layer'") if len(costs) else costs
    if not (found := cost.sweeps(trained)):
        return {}, ""
    title, sweep = max(found.items(), key=lambda item: len(item[1]))
    # Of the rows of a variant the last one is used: those that fail earlier are slower.
    ordered = cost.rows(sweep).sort_values(["longest", "seconds"], ascending=[True, False])
    texts = {
        row["attention"]: [n.text if n else NOTHING for n in (row["faster"], row["smaller"])]
        for row in ordered.to_dict("records")
    }
    first, last = sweep["length"].min(), sweep["length"].max()
    return texts, f"{first:,} to {last:,} tokens. Setting: {title}"


def rows(certificates: Mapping[str, Certificate]) -> list[list[str]]:
    """The texts under `HEAD` of every variant of this package that has a certificate."""
    found = []
    for name, variant in variants.built_in():
        if name in certificates:
            mixing = (r for r in certificates[name].results if r.check == "token mixing")
            mixes = next(mixing).detail.startswith("yes")
            claims = variant.traits.causal, variant.traits.recurrent, mixes
            texts = [name, *summary(name, variant).values()]
            texts += ["yes" if claim else "no" for claim in claims]
            found.append([*map(escape_prose, texts)])
    return found
