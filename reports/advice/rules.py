"""The rules of the advisor: which rows of a suite suit a purpose, by a table of plain values."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from reports.layer_costs import CAUSAL, FORMS, PASSES
from reports.statistics import differ
from reports.text import NOTHING, number

Values = dict[str, Any]  # A mapping of plain values, as JSON holds it
CAUSAL_PASSES = ("prefill", "decode")

# The places where a row can be used.
PLACES = {
    "layer": "PyTorch layer", "transformers": "transformers", "replace": "zoo.replace",
    "export": "torch.export", "gpu": "GPU kernel",
}  # fmt: skip

# The groups of rows whose state on a needed question is the reason to leave them out.
STATES = {
    "failed": "failed", "not separably better than a baseline": "baseline",
    "no attention": "control", "runs missing": "part", "not run": "missing",
}  # fmt: skip

# The rows that are left out, by reason; the first reason of a row counts.
EXCLUDED: Mapping[str, Callable[[Values], bool]] = {
    "no form for it": lambda row: not row["form"],
    **{
        group: lambda row, state=state: state in row["states"].values()
        for group, state in STATES.items()
    },
    "did not finish": lambda row: row["unfinished"],
    "not measured": lambda row: row["time"] is None,
    "needs more memory": lambda row: row["memory"] > row["limit"],
}

MEMORY_TIE = 0.05  # Amounts of memory that differ by at most this share are tied
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")

# The values of a point, after its length.
COSTS = ("time", "time.q1", "time.q3", "memory", "seconds")

# The values of a row for each needed question
OF_NEEDS = ("groups", "seeds", "solved", "ranges", "texts")


def key_of(operation: str, causal: bool) -> str:
    return f"{operation} causal" if causal else operation


def form_of(key: str) -> str:
    return FORMS[0 if key.endswith(f" {CAUSAL}") else 1]


def label_of(key: str) -> str:
    operation = key.partition(" ")[0]
    return f"{PASSES.get(operation, operation)}, {form_of(key)}"


def bytes_text(count: float | None) -> str:
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
    """Return the rows that suit a query: `length`, `pass`, `memory` (bytes, or None), `needs`.

    Returns:
        `refused`: the reason without a result, else empty. `members`: the Pareto set of groups,
        time and memory, ordered by time, each with the `tied` rows, whose results and costs do not
        differ, and its `uses`. `recommended`: see `best`. `dominated` rows.
        `excluded` rows by reason. `memory` of all others. `inferred` rows, whose costs are of
        their layers. `unanswered`: needed questions without evidence. `not_run`: questions
        without runs. `run`: the command for them. `commands` that measure everything else.
    """
    key, conflict = setting_of(table, query)
    used = [name for name in query["needs"] if name in table["usable"]]
    not_run = [name for name in query["needs"] if name in table["not_run"]]
    groups: dict[str, list[Values]] = {}
    for row in () if conflict else table["rows"]:
        found = _at(row, key, query, used)
        reason = next((name for name, is_out in EXCLUDED.items() if is_out(found)), "")
        groups.setdefault(reason, []).append(found)
    candidates = groups.pop("", [])
    refused = conflict or _refusal(table, query, key, used)
    names = [] if refused else [row["row"] for row in candidates]
    members = _members(candidates, key) if names else []
    chosen = [member["row"] for member in members]
    run = f"harness run --suite {table['suite']} --questions {','.join(not_run)}" if not_run else ""
    return {
        "refused": refused, "members": members,
        "recommended": best(members)["row"] if members else "",
        "dominated": [name for name in names if name not in chosen],
        "memory": {} if refused else {row["row"]: row["memory"] for row in candidates},
        "excluded": {} if refused else {
            name: [_with_questions(row, STATES.get(name)) for row in groups[name]]
            # Most rows were not run: they are the last.
            for name in sorted(EXCLUDED, key="not run".__eq__) if name in groups
        },
        "inferred": [row["row"] for row in candidates if row["inferred"] and not refused],
        "unanswered": [name for name in query["needs"] if name not in used],
        "not_run": not_run, "run": run, "commands": _commands(table, query, groups, key),
    }  # fmt: skip


def setting_of(table: Values, query: Mapping[str, Any]) -> tuple[str, str]:
    of_form = {form: [n for n in query["needs"] if table["forms"][n] == form] for form in FORMS}
    if query["pass"] in CAUSAL_PASSES:
        of_form[CAUSAL].append(PASSES[query["pass"]])
    key = key_of(query["pass"], bool(of_form[CAUSAL]))
    if not all(of_form.values()):
        return key, ""
    needs = "; ".join(f"{form}: {', '.join(names)}" for form, names in of_form.items())
    remedy = "ask for each by itself"
    if query["pass"] in CAUSAL_PASSES:
        remedy = "ask for a causal question, or for pass train or forward"
    return key, f"a layer has one form, and this asks for two ({needs}); {remedy}"


def _at(row: Values, key: str, query: Values, needs: Sequence[str]) -> Values:
    limit, values = query["memory"], between(row["points"].get(key, []), query["length"])
    return {
        **row, "form": row[form_of(key)], **dict(zip(COSTS, values or [None] * 5, strict=True)),
        "limit": math.inf if limit is None else limit,
        "unfinished": query["length"] >= row["unfinished"].get(key, math.inf),
        **{of: [row[of].get(name, 0) for name in needs] for of in OF_NEEDS},
        "states": {name: row["states"][name] for name in needs},
    }  # fmt: skip


def between(points: Sequence[Sequence[float]], length: int) -> list[float] | None:
    # Interpolate in logarithms; None outside the measured lengths.
    for before, after in zip(points, [*points[1:], points[-1]] if points else (), strict=True):
        if before[0] <= length <= after[0]:
            span = math.log(after[0] / before[0])
            share = math.log(length / before[0]) / span if span else 0.0
            return [
                a * (b / a) ** share if a > 0 and b > 0 else a + share * (b - a)
                for a, b in zip(before[1:], after[1:], strict=True)
            ]
    return None


def rank_key(member: Values) -> tuple[float, ...]:
    # The best groups first, of these the fastest row.
    return max(member["groups"]), sum(member["groups"]), member["time"]


def best(members: Sequence[Values]) -> Values:
    return min(members, key=rank_key)


def _members(candidates: Sequence[Values], key: str) -> list[Values]:
    figures = np.array([[*row["groups"], row["time"], row["memory"]] for row in candidates])
    members: list[Values] = []
    for row, own in zip(candidates, figures, strict=True):
        if (np.all(figures <= own, -1) & np.any(figures < own, -1)).any():  # dominated
            continue
        members.append({
            **{name: row[name] for name in ("row", *COSTS, *OF_NEEDS, "inferred")},
            "bound": int(key in row["bounds"]), "crossover": row["crossovers"].get(key),
            "uses": row["uses"].get(form_of(key), []),
            "tied": [of["row"] for of in candidates if of != row and _are_tied(row, of)],
        })  # fmt: skip
    return sorted(members, key=lambda member: (member["time"], member["row"]))


def _are_tied(row: Values, other: Values) -> bool:
    # Two that solve a question never differ.
    questions = zip(row["solved"], other["solved"], row["ranges"], other["ranges"], strict=True)
    if not all((a and b) or (a == b and not differ(*ends)) for a, b, *ends in questions):
        return False
    overlap = row["time.q1"] <= other["time.q3"] and other["time.q1"] <= row["time.q3"]
    memories = row["memory"], other["memory"]
    within = max(memories) - min(memories) <= MEMORY_TIE * max(memories)
    return overlap and within


def _refusal(table: Values, query: Values, key: str, used: Sequence[str]) -> str:
    if not (lengths := table["lengths"].get(key, [])):
        return f"no cost is measured of this pass and form ({label_of(key)})"
    if not lengths[0] <= query["length"] <= lengths[-1]:
        return f"{query['length']:,} tokens are not between {lengths[0]:,} and {lengths[-1]:,}"
    if used:
        return ""
    texts = [f"no variant is separably better than {of['baseline']} at {table['questions'][name]}; "
             f"the best mean is {of['best']}"
             for name in query["needs"] if (of := table["unbeaten"].get(name))]  # fmt: skip
    return "; ".join(texts) or "no variant has results on these questions"


def _with_questions(row: Values, state: str | None) -> str:
    names = ", ".join(name for name, of in row["states"].items() if of == state)
    return f"{row['row']} ({names})" if names and len(row["states"]) > 1 else row["row"]


def _commands(
    table: Values, query: Values, groups: Mapping[str, Sequence[Values]], key: str
) -> list[str]:
    setting, operation = table["setting"], query["pass"]
    names = ("level", "dim", "heads", "precision", "device")
    fields = " ".join(f"--{name} {setting[name]}" for name in names if name in setting)
    causal = " --causal" * (form_of(key) == CAUSAL and operation not in CAUSAL_PASSES)
    questions = ",".join(name for name in query["needs"] if name in table["usable"])
    measured = [
        f"harness cost {rows} --lengths {query['length']} --pass {operation}{causal} {fields} "
        f"--batch {setting['batch'].get(operation, '1')}"
        for rows in _selected(groups.get("not measured", ()), lambda row: row["parts"])
    ]
    ran = _selected(groups.get("not run", ()), lambda row: [row["attention"]])
    return measured + [
        f"harness run --suite {table['suite']} {rows} --questions {questions}" for rows in ran
    ]


def _selected(rows: Iterable[Values], names_of: Callable[[Values], Iterable[str]]) -> list[str]:
    by_options: dict[str, dict[str, None]] = {}
    for row in rows:
        options = "".join(f" --set {text}" for text in row["set"])
        by_options.setdefault(options, {}).update(dict.fromkeys(names_of(row)))
    return [f"--attention {','.join(names)}{options}" for options, names in by_options.items()]
