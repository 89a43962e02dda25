"""The rules of the advisor: which rows of a suite suit a purpose.

`rules.json` says which rows are left out and what is compared; `advise` here and in
`reports/site/site.js` executes it over one table of plain values, and a test compares the two.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reports.layer_costs import CAUSAL, FORMS
from reports.text import NOTHING, number

Values = dict[str, Any]
"""A mapping of plain values, as JSON holds it."""

RULES: Values = json.loads(Path(__file__).with_name("rules.json").read_text("utf-8"))

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""A group as one character of the draws of a question."""

STATES = ("failed", "missing", "baseline")
"""Why a row of this form has no result that counts on a question."""

COSTS = ("time", "time.q1", "time.q3", "memory", "seconds")
"""The values of a point, after its length."""

IQR = 1.349
"""The interquartile range of a normal distribution, in standard deviations."""


def key_of(operation: str, causal: bool) -> str:
    """The costs of one pass, as a key: `train`, `train causal`."""
    return f"{operation} causal" if causal else operation


def form_of(key: str) -> str:
    """The form of the layers of a key."""
    return FORMS[0 if key.endswith(f" {CAUSAL}") else 1]


def label_of(key: str) -> str:
    """A key for a reader: `training, causal`."""
    operation = key.partition(" ")[0]
    return f"{RULES['passes'].get(operation, operation)}, {form_of(key)}"


def bytes_text(count: float | None) -> str:
    """Bytes with three significant digits: `8.00 KiB`."""
    if count is None:
        return NOTHING
    power = min(int(math.log(max(count, 1), 1024)), len(UNITS) - 1)
    return f"{number(count / 1024**power)} {UNITS[power]}"


def bytes_in(text: str) -> int:
    """Read an amount of memory, `2GiB` or `512 MiB`; raise `ValueError` if it is not one."""
    amount = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([KMGT]?)i?B?\s*", text, re.IGNORECASE)
    if not amount:
        raise ValueError(text)
    return round(float(amount[1]) * 1024 ** "BKMGT".index(amount[2].upper() or "B"))


def advise(table: Values, query: Values) -> Values:
    """The rows that suit a purpose.

    Args:
        table: see `table`.
        query: `length`, `pass`, `memory` (bytes, or None), `needs` (questions). The costs are of
            the form of these questions.

    Returns:
        `members` of the Pareto set (no other row is at least as good in groups, time and memory and
        better in one) in order of time, each with its figures, the `probability` of membership,
        the rows that it is `tied` with and where it can be used (`uses`); the `recommended` one,
        the fastest in the best groups; `dominated` rows; `excluded` rows by reason; `inferred`: the
        rows of both whose cost was not measured; needed questions without evidence (`unanswered`),
        of these `not_run`, and the command that runs them (`run`); `commands` that measure what
        else is missing; `refused`: why there is no answer, empty where there is one.
    """
    key, conflict = setting_of(table, query)
    used = [name for name in query["needs"] if name in table["usable"]]
    not_run = [name for name in query["needs"] if name in table["not_run"]]
    groups: dict[str, list[Values]] = {}
    for row in () if conflict else table["rows"]:
        values = _values(row, key, query["length"], used)
        groups.setdefault(_excluded(values, query), []).append(values)
    candidates = groups.pop("", [])
    refused = conflict or _refusal(table["lengths"].get(key, []), query, key, used)
    members = [] if refused or not candidates else _members(candidates, used, key)
    members = sorted(members, key=lambda member: (member["time"], member["row"]))
    best = min(members, key=lambda m: (max(m["groups"]), sum(m["groups"])), default=None)
    run = RULES["run"].format(suite=table["suite"], questions=",".join(not_run)) if not_run else ""
    chosen = [member["row"] for member in members]
    others = [name for values in candidates if (name := values["row"]["row"]) not in chosen]
    return {
        "refused": refused, "members": members, "recommended": best["row"] if best else "",
        "dominated": [] if refused else others,
        "excluded": {
            rule["group"]: [_reason(values, rule["column"]) for values in groups[rule["group"]]]
            for rule in RULES["exclude"]
            if rule["group"] in groups and not refused
        },
        "inferred": [v["row"]["row"] for v in candidates if v["row"]["inferred"] and not refused],
        "unanswered": [name for name in query["needs"] if name not in used],
        "not_run": not_run, "run": run, "commands": _commands(table, query, groups, key),
    }  # fmt: skip


def setting_of(table: Values, query: Mapping[str, Any]) -> tuple[str, str]:
    """The key of the costs that a query asks for, and why it asks for none; empty if it does."""
    of_form = {form: [n for n in query["needs"] if table["forms"][n] == form] for form in FORMS}
    if query["pass"] in RULES["causal_passes"]:
        of_form[CAUSAL].append(RULES["passes"][query["pass"]])
    key = key_of(query["pass"], bool(of_form[CAUSAL]))
    if not all(of_form.values()):
        return key, ""
    needs = "; ".join(f"{form}: {', '.join(names)}" for form, names in of_form.items())
    return key, f"a layer has one form, and this asks for two ({needs}); ask for each by itself"


def _values(row: Values, key: str, length: int, needs: Sequence[str]) -> Values:
    """The values of a row that the rules read; a time of None where the length is not measured."""
    values = between(row["points"].get(key, []), length)
    states = [row["states"][name] for name in needs]
    return {
        "row": row, "form": row[form_of(key)],
        **dict(zip(COSTS, values or [None] * 5, strict=True)),
        "unfinished": int(length >= row["unfinished"].get(key, math.inf)),
        "groups": [row["groups"].get(name, 0) for name in needs],
        "seeds": [row["seeds"].get(name, 0) for name in needs],
        "states": dict(zip(needs, states, strict=True)),
        **{state: states.count(state) for state in STATES},
    }  # fmt: skip


def between(points: Sequence[Sequence[float]], length: int) -> list[float] | None:
    """The values at a length: between two measured lengths linear in logarithms; None outside."""
    for before, after in zip(points, [*points[1:], points[-1]] if points else (), strict=True):
        if before[0] <= length <= after[0]:
            span = math.log(after[0] / before[0])
            share = math.log(length / before[0]) / span if span else 0.0
            return [
                a * (b / a) ** share if a > 0 and b > 0 else a + share * (b - a)
                for a, b in zip(before[1:], after[1:], strict=True)
            ]
    return None


def _excluded(values: Values, bounds: Mapping[str, Any]) -> str:
    """The group of the first rule that leaves a row out; empty where none does."""
    for rule in RULES["exclude"]:
        value = values[rule["column"]]
        # A bound is a number, or the name of a field of the query.
        low, high = (bounds.get(rule.get(name), rule.get(name)) for name in ("below", "above"))
        is_out = (low is not None and value < low) or (high is not None and value > high)
        if is_out or ("missing" in rule and value is None):
            return rule["group"]
    return ""


def _objectives(values: Values) -> list[float]:
    objectives = (values[name] for name in RULES["objectives"])
    return [v for value in objectives for v in (value if isinstance(value, list) else [value])]


def _drawn(values: Values, needs: Sequence[str], draw: int) -> list[float]:
    """The objectives of a row in one draw."""
    row, spread = values["row"], math.log(values["time.q3"] / values["time.q1"]) / IQR
    time = values["time"] * math.exp(row["z"][draw] / 100 * spread)
    groups = [DIGITS.index(row["draws"][name][draw]) for name in needs]
    return _objectives({**values, "groups": groups, "time": time})


def _pareto(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """True for rows that no other row dominates: (draws, rows, objectives) to (draws, rows)."""
    first, second = values[:, :, None], values[:, None]
    dominates: NDArray[np.bool_] = np.all(first <= second, -1) & np.any(first < second, -1)
    return ~np.any(dominates, axis=1)


def _members(candidates: Sequence[Values], needs: Sequence[str], key: str) -> list[Values]:
    """The rows of the Pareto set."""
    draws = range(len(candidates[0]["row"]["z"]))
    inside = _pareto(np.array([[_objectives(values) for values in candidates]]))[0]
    samples = np.array([[_drawn(values, needs, draw) for values in candidates] for draw in draws])
    return [
        {
            "row": v["row"]["row"], **{name: v[name] for name in (*COSTS, "groups", "seeds")},
            "inferred": v["row"]["inferred"], "crossover": v["row"]["crossovers"].get(key),
            "uses": v["row"]["uses"].get(form_of(key), []),
            "probability": float(share),
            "tied": [w["row"]["row"] for w in candidates if w is not v and _tied(v, w)],
        }
        for v, is_in, share in zip(candidates, inside, _pareto(samples).mean(0), strict=True)
        if is_in
    ]  # fmt: skip


def _tied(first: Values, other: Values) -> bool:
    """Return whether the data do not separate two rows in any objective."""
    tie = RULES["tie"]
    overlaps = [
        a[f"{name}.q1"] <= b[f"{name}.q3"]
        for name in tie["overlap"]
        for a, b in ((first, other), (other, first))
    ]
    within = [
        abs(first[name] - other[name]) <= share * max(first[name], other[name])
        for name, share in tie["within"].items()
    ]
    return all([first[name] == other[name] for name in tie["equal"]] + overlaps + within)


def _refusal(lengths: Sequence[int], query: Values, key: str, used: Sequence[str]) -> str:
    """The reason why there is no answer; empty where there is one."""
    if not lengths:
        return f"no cost of {label_of(key)} is measured"
    if not lengths[0] <= query["length"] <= lengths[-1]:
        return f"{query['length']:,} tokens are not between {lengths[0]:,} and {lengths[-1]:,}"
    return "" if used else "there is no evidence for any row in what is needed"


def _reason(values: Values, column: str) -> str:
    """A row that is left out, with the questions whose state is why, of several that are needed."""
    states, label = values["states"], values["row"]["row"]
    names = ", ".join(name for name, state in states.items() if state == column)
    return f"{label} ({names})" if names and len(states) > 1 else label


def _commands(
    table: Values, query: Values, groups: Mapping[str, Sequence[Values]], key: str
) -> list[str]:
    """The commands that measure or run the rows that are left out for that reason."""
    setting, operation = table["setting"], query["pass"]
    names = ("dim", "heads", "precision", "device")
    cost = " ".join(f"--{name} {setting[name]}" for name in names if name in setting)
    values = {"suite": table["suite"], "length": query["length"], "pass": operation, "cost": cost}
    values["questions"] = ",".join(name for name in query["needs"] if name in table["usable"])
    values["batch"] = setting["batch"].get(operation, "1")
    is_causal = form_of(key) == CAUSAL and operation not in RULES["causal_passes"]
    flag = " --causal" if is_causal else ""
    commands = []
    for group, template in RULES["commands"].items():
        by_set: dict[str, dict[str, None]] = {}
        for row in (values["row"] for values in groups.get(group, ())):
            options = "".join(f" --set {text}" for text in row["set"])
            names = row["parts"] if "{cost}" in template else [row["attention"]]
            by_set.setdefault(options, {}).update(dict.fromkeys(names))
        commands += [
            template.format(rows=f"--attention {','.join(attentions)}{options}", causal=flag,
                            **values)
            for options, attentions in by_set.items()
        ]  # fmt: skip
    return commands
