"""The advisor: which rows of a suite suit a purpose, from records alone."""

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

from reports.advice.rules import (
    MOST_NEEDS,
    PASSES,
    PLACES,
    Values,
    advise,
    bytes_in,
    bytes_text,
    choices,
    label_of,
    setting_of,
)
from reports.advice.table import table
from reports.markdown import memory_of, rendered
from reports.text import NOTHING, WIDE, number, text_table

__all__ = [
    "MOST_NEEDS", "PASSES", "PLACES", "Values", "advice_text", "advise", "bytes_in",
    "bytes_text", "choices", "table",
]  # fmt: skip


def advice_text(table: Values, query: Values, result: Values) -> str:
    """The answer to a query as text; see `reports.advice.rules.advise`."""
    key, _ = setting_of(table, query)
    return rendered(
        "advice.txt.j2", table=table, query=query, result=result,
        setting=table["setting"], label=label_of(key), members=_members(table, query, result, key),
        listed=_listed, notes=table["notes"], uses=_uses(result),
        judged=any(of for row in table["rows"] for of in row["verdicts"].values()),
        sentence=fill(recommendation(table, query, result), WIDE),
    ).rstrip("\n")  # fmt: skip


def recommendation(table: Values, query: Values, result: Values) -> str:
    """One sentence on the recommended row; empty without one."""
    found = [member for member in result["members"] if member["row"] == result["recommended"]]
    if not found:
        return ""
    (member,), setting, (key, _) = found, table["setting"], setting_of(table, query)
    used = [name for name in query["needs"] if name not in result["unanswered"]]
    needs = " and ".join(
        f"{table['questions'][name]} ({', '.join(filter(None, (verdict, steps)))})"
        for name, verdict in zip(used, member["verdicts"], strict=True)
        for steps in [f"{table['steps'][name]:,} steps"]
    )
    group = max(member["groups"])
    rank = "one of the best" if group == 1 else f"in group {group}, as no variant is in a better"
    these = "those with these verdicts" if any(member["verdicts"]) else "these"
    time = f"{number(1000 * member['time'])} ms"
    if table["units"][key] == "ratio":
        time = f"{number(member['time'])} times the time of softmax"
    where = [setting.get("device", "").upper(), setting["precision"], f"width {setting['dim']}"]
    return (
        f"Use {member['row']} for {needs}: it is {rank}, and of {these} the fastest, with {time} "
        f"({label_of(key)}, {query['length']:,} tokens; {', '.join(filter(None, where))})."
    )


def _uses(result: Values) -> dict[str, list[str]]:
    """The places where each row of the Pareto set can be used."""
    return {
        member["row"]: [PLACES[place] for place in member["uses"]]
        for member in result["members"]
        if member["uses"]
    }


def _listed(what: str, names: Sequence[str]) -> str:
    """Names after a word, in lines of `WIDE`."""
    return fill(f"{what}: {', '.join(names)}", WIDE, subsequent_indent="  ",
                break_long_words=False, break_on_hyphens=False)  # fmt: skip


def _members(table: Values, query: Values, result: Values, key: str) -> str:
    """The Pareto set as a table; empty without a member."""
    if not result["members"]:
        return ""
    used = [name for name in query["needs"] if name not in result["unanswered"]]
    scale, time = (1, "time, x softmax") if table["units"][key] == "ratio" else (1e3, "time, ms")
    memory = memory_of(query["pass"])
    head = ["attention", *used, time, memory, "faster from", "in the set", "tied with"]
    return text_table(head, [_cells(member, scale) for member in result["members"]], WIDE)


def _cells(member: Mapping[str, Any], scale: float) -> list[str]:
    time, low, high = (number(scale * member[name]) for name in ("time", "time.q1", "time.q3"))
    groups = zip(member["groups"], member["verdicts"], member["seeds"], strict=True)
    return [
        member["row"],
        *(f"group {group}{f', {verdict}' * bool(verdict)}{' (1 seed)' * (seeds == 1)}"
          for group, verdict, seeds in groups),
        f"{time} [{low}, {high}]{' inferred' * member['inferred']}", bytes_text(member["memory"]),
        member["crossover"]["text"] if member["crossover"] else NOTHING,
        f"{100 * member['probability']:.0f} %", ", ".join(member["tied"]) or NOTHING,
    ]  # fmt: skip
