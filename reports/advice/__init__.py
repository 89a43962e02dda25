"""The advisor: which rows of a suite suit a purpose, from records alone."""

from collections.abc import Sequence
from functools import partial
from itertools import chain, combinations, product
from textwrap import fill

from reports.advice import rules
from reports.advice.rules import PASSES, PLACES, Values, advise, bytes_in, bytes_text
from reports.advice.table import table
from reports.layer_costs import CAUSAL, FORMS
from reports.markdown import memory_of, rendered
from reports.pages.sentences import BOTH
from reports.text import NOTHING, WIDE, number, ratio_text, text_table

__all__ = [
    "MOST_NEEDS", "PASSES", "PLACES", "Values", "advice_text", "advise", "bytes_in",
    "bytes_text", "choices", "recommendation", "table",
]  # fmt: skip


RUNNERS_UP = 2  # The most other members that a recommendation names
SHOWN = 5  # The most members of a table of a terminal
MOST_NEEDS = 4  # The most questions of a query whose result the site has


# Names of rows have hyphens.
wrap = partial(fill, width=WIDE, break_long_words=False, break_on_hyphens=False)


def advice_text(table: Values, query: Values, result: Values, *, why: bool = False) -> str:
    key, _ = rules.setting_of(table, query)
    uses = {of["row"]: [*map(PLACES.get, of["uses"])] for of in result["members"] if of["uses"]}
    texts = [f"{table['unbeaten'][name]['baseline']} at {table['questions'][name]}"
             for name in query["needs"]
             if name not in result["unanswered"] and name in table["unbeaten"]]  # fmt: skip
    unbeaten = f"No variant is separably better than {', '.join(texts)}." if texts else ""
    return rendered(
        "advice.txt.j2", table=table, query=query, result=result, setting=table["setting"],
        label=rules.label_of(key), members=_members(table, query, result, key), why=why, uses=uses,
        notes=table["notes"],
        listed=lambda what, names: wrap(f"{what}: {', '.join(names)}", subsequent_indent="  "),
        sentence=wrap(recommendation(table, query, result)), unbeaten=wrap(unbeaten),
    ).rstrip("\n")  # fmt: skip


def recommendation(table: Values, query: Values, result: Values) -> str:
    found = [member for member in result["members"] if member["row"] == result["recommended"]]
    if not found:
        return ""
    (member,), (key, _) = found, rules.setting_of(table, query)
    used = [name for name in query["needs"] if name not in result["unanswered"]]
    needs = " and ".join(table["heads"][name].removesuffix(BOTH) for name in used)
    unit = " times the time of softmax" if table["units"][key] == "ratio" else " ms"
    others = [of for of in result["members"] if of["row"] != member["row"]]
    others.sort(key=rules.rank_key)
    after = ", ".join(f"{of['row']} ({_time(table, key, of)})" for of in others[:RUNNERS_UP])
    worse = " No variant that is left is among the best of every question; this one comes closest."
    worse *= 1 not in [max(of["groups"]) for of in result["members"]]
    return (
        f"Use {member['row']} for {needs}: {_time(table, key, member)}{unit}, "
        f"{bytes_text(member['memory'])} ({rules.label_of(key)}, {query['length']:,} tokens)"
        f"{decoding(table, query, member['row'])}.{worse}{f' Runners-up: {after}.' * bool(after)}"
    )


def decoding(table: Values, query: Values, row: str) -> str:
    # The cost of decoding, for an answer about another pass of a causal layer.
    (key, _), decode = rules.setting_of(table, query), rules.key_of("decode", True)
    if rules.form_of(key) != CAUSAL or key == decode or table["units"].get(decode) != "ratio":
        return ""
    points = next((of["points"] for of in table["rows"] if of["row"] == row), {})
    values = rules.between(points.get(decode, []), query["length"])
    return f"; decoding: {ratio_text(values[0])} of softmax's time" if values else ""


def choices(table: Values) -> Values:
    # The results of `advise` to every query of the site: the measured lengths and the powers of two
    # between them, every pass, up to `MOST_NEEDS` usable questions of one form, any memory. A limit
    # of memory only removes rows: a row that dominates another needs no more memory.
    # `results` has the keys `pass length needs`, with a form for `needs` without a usable question.
    # Each member has its `cells`, and the `recommended` member with the `sentence` if its memory is
    # the limit.
    measured = {*chain.from_iterable(table["lengths"].values())}
    shortest, longest = min(measured, default=1), max(measured, default=1)
    lengths = sorted(measured | {n for n in (2**k for k in range(40)) if shortest < n < longest})
    needs: dict[str, Sequence[str]] = {}
    for form in FORMS:
        names = [name for name in table["forms"] if table["forms"][name] == form]
        usable = [name for name in names if name in table["usable"]]
        unusable = [name for name in names if name not in usable]
        needs |= {form: unusable[:1]} if unusable else {}
        sets = chain.from_iterable(combinations(usable, n + 1) for n in range(MOST_NEEDS))
        needs |= {",".join(chosen): chosen for chosen in sets}
    results: Values = {}
    for operation, length, (name, asked) in product(PASSES, lengths, needs.items()):
        query = {"length": length, "pass": operation, "memory": None, "needs": [*asked]}
        key, conflict = rules.setting_of(table, query)
        if not conflict:
            found = advise(table, query)
            members = []
            for member in found["members"]:
                within = [of for of in found["members"] if of["memory"] <= member["memory"]]
                recommended = rules.best(within)["row"]
                limited = {**found, "recommended": recommended, "members": within}
                members.append({
                    **member, "recommended": recommended, "cells": _cells(table, key, member),
                    "sentence": recommendation(table, query, limited),
                })  # fmt: skip
            results[f"{operation} {length} {name}"] = {**found, "key": key, "members": members}
    return {"lengths": lengths, "results": results}


def _members(table: Values, query: Values, result: Values, key: str) -> str:
    if not result["members"]:
        return ""
    used = [name for name in query["needs"] if name not in result["unanswered"]]
    time = "time, softmax = 1" if table["units"][key] == "ratio" else "time, ms"
    titles = [table["heads"][name].removesuffix(BOTH) for name in used]
    head = ["attention", *titles, time, memory_of(query["pass"]), "faster from"]
    # The recommended one is the first.
    found = sorted(result["members"], key=rules.rank_key)
    return text_table(head, [_cells(table, key, of) for of in found[:SHOWN]], WIDE)


def _cells(table: Values, key: str, member: Values) -> list[str]:
    low, high = (_time(table, key, member, f"time.{end}") for end in ("q1", "q3"))
    scores = zip(member["texts"], member["seeds"], strict=True)
    return [
        member["row"],
        *(f"{text}{' (1 seed)' * (seeds == 1)}" for text, seeds in scores),
        f"{_time(table, key, member)} [{low}, {high}]",
        bytes_text(member["memory"]),
        member["crossover"]["text"] if member["crossover"] else NOTHING,
    ]  # fmt: skip


def _time(table: Values, key: str, member: Values, name: str = "time") -> str:
    value = member[name]
    return ratio_text(value) if table["units"][key] == "ratio" else number(1000 * value)
