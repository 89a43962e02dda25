"""The table that the advisor reads: for each row of a suite, plain values of scores and costs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness import recipes
from harness.records.families import family_of, is_control, layer_counts
from harness.records.suites import Suite
from reports import layer_costs
from reports.advice.rules import PASSES, Values, key_of, label_of
from reports.statistics import score_groups
from reports.suite_results import on_longest
from reports.text import number, outdated_text

Points = dict[str, list[list[float]]]  # Values at each measured length, by setting: see `_points`
FEWEST = 2  # Seeds of a result: one says nothing of the others
UNKNOWN = {"missing", "impossible", "part"}  # The states of rows without a result
KEY = ("pass", "causal")  # The columns of costs that `key_of` names

# The claims of a row, which hold for every variant of a composition.
TRAITS = ("causal", "bidirectional", "linear", "recurrent")


def table(
    answers: pd.DataFrame, seeds: pd.DataFrame, costs: pd.DataFrame, suite: Suite,
    catalogue: Mapping[str, Iterable[Mapping[str, Any]]],
) -> Values:  # fmt: skip
    """The input of the rules, as plain values."""
    costs = layer_costs.of_suite(costs, suite)
    keys = _keys(costs)
    units = {
        key: "ratio" if lines["ratio"].notna().any() else "seconds" for key, lines in keys.items()
    }
    of_questions = recipes.of_suite(suite)
    depth = max(int(recipe.model.get("depth", 1)) for recipe in of_questions.values())
    traits = {variant["name"]: variant for variant in catalogue["variants"]}
    rows = [*_rows(costs, suite, traits, units, depth)]
    forms = layer_costs.forms_of(suite, catalogue["tasks"])
    titles = {question.name: question.title for question in suite.questions}
    # A question is ranked by its longest probe, and has its name in heads of columns.
    heads, asks = dict(titles), {question.name: question.asks for question in suite.questions}
    for name, form in forms.items():
        of_question = answers[answers["question"] == name].set_index("row")
        if of_question["longest.text"].any():
            of_question = on_longest(of_question)
            heads[name] = suite.question(name).longest_title
            asks[name] += f" The results are of {suite.question(name).longest_probe}."
        finals = seeds[(seeds["question"] == name) & (seeds["status"] == "ok")]
        _add_question(rows, name, form, of_question, finals)
    every = [key_of(name, causal) for name in PASSES for causal in (False, True)]
    lengths = {key: keys[key]["length"].unique() for key in every if key in keys}
    states = {name: {row["states"][name] for row in rows} for name in titles}
    setting = suite.cost.model_dump(include={"dim", "heads", "precision", "batch"})
    machine = costs[["device", "machine", "threads"]].head(1).to_dict("records")
    return {
        "suite": suite.key, "questions": titles, "heads": heads, "asks": asks, "forms": forms,
        "steps": {name: recipe.train["steps"] for name, recipe in of_questions.items()},
        "question_notes": {of.name: of.note for of in suite.questions if of.note},
        "unbeaten": _unbeaten(suite, answers),
        "usable": [name for name in titles if "ok" in states[name]],
        "not_run": [name for name in titles if states[name] <= UNKNOWN],
        "units": units, "labels": {key: label_of(key) for key in every},
        "lengths": {key: sorted(map(int, found)) for key, found in lengths.items()},
        "setting": {"level": suite.cost.level, **setting, **next(iter(machine), {})}, "rows": rows,
        "notes": [*filter(None, (outdated_text(seeds), outdated_text(costs, "costs")))],
    }  # fmt: skip


def _unbeaten(suite: Suite, answers: pd.DataFrame) -> dict[str, dict[str, str]]:
    # The strongest baseline and the best variant of questions at which no variant is better.
    found: dict[str, dict[str, str]] = {}
    scored = answers[answers["mean"].notna() & (answers["baseline"] != "")]
    scored = scored[~scored["attention"].map(is_control).astype(bool)]
    for name, rows in scored.groupby("question"):
        if rows["answered"].any():
            continue
        sign = -1.0 if (rows["better"] == "lower").any() else 1.0
        several = rows[rows["seeds"] >= FEWEST]
        best = rows.loc[(sign * (rows if several.empty else several)["mean"]).idxmax()]
        interval = f" {best['interval']}" * bool(best["seeds"] >= FEWEST)
        found[str(name)] = {
            "baseline": f"{best['baseline']} ({number(best['baseline_value'])})",
            "best": f"{best['text']}{interval}, of {best['row']}",
        }
    return found


def _rows(
    costs: pd.DataFrame, suite: Suite, traits: Mapping[str, Mapping[str, Any]],
    units: Mapping[str, str], depth: int,
) -> Iterator[Values]:  # fmt: skip
    points_of = {str(label): _points(lines, units) for label, lines in costs.groupby("row")}
    for row in suite.rows:
        measured, variants = points_of.get(row.label, {}), [*layer_counts(row.attention)]
        # The layers of a composition are measured with their default options.
        points = measured or ({} if row.options else _composed(row.attention, depth, points_of))
        uses = [traits[name]["uses"] for name in variants]
        yield {
            "row": row.label, "attention": row.attention, "parts": variants,
            "set": [f"{v}.{o}={row.options[v][o]}" for v in row.options for o in row.options[v]],
            **{trait: int(all(traits[name][trait] for name in variants)) for trait in TRAITS},
            "family": family_of(row.attention),
            "uses": {
                form: [place for place in places if all(place in of[form] for of in uses)]
                for form, places in uses[0].items() if all(form in of for of in uses)
            },
            "points": points, "inferred": int(bool(points) and not measured),
            "bounds": _bounds(costs[costs["row"].isin([row.label] if measured else variants)]),
            "crossovers": _crossovers(points, units),
            "unfinished": unfinished(costs[costs["row"] == row.label]),
            "states": {}, "solved": {}, "groups": {}, "ranges": {}, "seeds": {}, "texts": {},
        }  # fmt: skip


def _keys(costs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    groups: Any = costs[costs["status"] == "ok"].groupby([*KEY])
    return {key_of(*key): lines for key, lines in groups}


def _points(costs: pd.DataFrame, units: Mapping[str, str]) -> Points:
    found: Points = {}
    for key, lines in _keys(layer_costs.preferred_first(costs)).items():
        unit = units[key]
        first = lines.dropna(subset=[unit]).drop_duplicates("length").sort_values("length")
        for cost in first.to_dict("records"):
            scale = cost["batch"] if unit == "seconds" else 1
            times = [cost[name] / scale for name in (unit, f"{unit}.q1", f"{unit}.q3")]
            memory = cost["memory"] / cost["memory_batch"]
            point = [cost["length"], *times, memory, cost["seconds"] / cost["batch"]]
            found.setdefault(key, []).append([float(f"{value:.6g}") for value in point])
    return found


def _bounds(costs: pd.DataFrame) -> list[str]:
    fastest = {key: lines.drop_duplicates(["row", "length"])["computed_by"]
               for key, lines in _keys(layer_costs.preferred_first(costs)).items()}  # fmt: skip
    # Every variant decodes by PyTorch operations.
    return [key for key, of in fastest.items()
            if not key.startswith("decode") and of.eq(layer_costs.PYTORCH).any()]  # fmt: skip


def _composed(attention: str, depth: int, points_of: Mapping[str, Points]) -> Points:
    # The mean over the layers, at their common lengths.
    layers = layer_costs.layer_weights(attention, depth)
    if not layers.keys() <= points_of.keys():
        return {}
    names, counts = [*layers], [*layers.values()]
    found: Points = {}
    for key in points_of[names[0]]:
        columns = [{p[0]: p for p in points_of[name].get(key, [])} for name in names]
        for length in sorted(set.intersection(*map(set, columns))):
            mean = np.average([by_length[length] for by_length in columns], axis=0, weights=counts)
            found.setdefault(key, []).append(mean.tolist())
    return found


def _crossovers(points: Points, units: Mapping[str, str]) -> dict[str, Values]:
    found = {}
    for key, values in points.items():
        ends = ({int(point[0]): point[end] for point in values} for end in (2, 3))
        if units[key] == "ratio" and (cross := layer_costs.crossover(*ends)):
            low, high = (round(v) if math.isfinite(v) else None for v in (cross.low, cross.high))
            found[key] = {"low": low, "high": high, "text": cross.text}
    return found


def unfinished(costs: pd.DataFrame) -> dict[str, int]:
    # The shortest length at which no backend finished.
    ended = (costs["status"] == "ok").groupby([costs[name] for name in (*KEY, "length")]).any()
    shortest: Any = ended[~ended].reset_index().groupby([*KEY])["length"].min()
    return {key_of(*key): int(length) for key, length in shortest.items()}


def _add_question(
    rows: Sequence[Values], name: str, form: str, answers: pd.DataFrame, finals: pd.DataFrame,
) -> None:  # fmt: skip
    scored = answers[answers["mean"].notna()]
    with_attention = finals.loc[~finals["baseline"].astype(bool), "row"]
    ranked = (scored["rank_group"] != "") & scored.index.isin(with_attention)
    # Losses are usable even if no variant is better than every baseline.
    # A control is no answer to which attention to use.
    controls = scored["attention"].map(is_control).astype(bool)
    answered = scored["answered"] & ~controls
    scored = scored.assign(usable=answered if answered.any() else ranked & ~controls)
    above, sign = scored[scored["usable"]], -1.0 if (scored["better"] == "lower").any() else 1.0
    # The first group has the rows in bold.
    first = above["best"].astype(bool)
    of_rows = dict.fromkeys(above.index[first], 1) | {
        row: group + bool(first.any()) for row, group in score_groups(above[~first]).items()
    }
    groups = (sign * above["mean"]).groupby(of_rows)
    # Halfway between each group and the one before: a mean below i cuts is in group i + 1.
    cuts = (groups.min().to_numpy()[:-1] + groups.max().to_numpy()[1:]) / 2
    for row in rows:
        label, missing = row["row"], "missing" if row[form] else "impossible"
        if label not in scored.index:
            failed = label in answers.index and answers.at[label, "status"] != ""
            row["states"][name] = "failed" if failed else missing
            continue
        answer = scored.loc[label]
        if answer["part"] and answer["seeds"] < FEWEST:
            state = "part"
        elif answer["usable"]:
            state = "ok"
        elif answer["at_baseline"]:
            state = "baseline"
        else:
            state = "control" if answer["answered"] else missing
        row["states"][name] = state
        row["solved"][name] = int(answer["solved"])
        row["texts"][name] = answer["text"] + f" {answer['interval']}" * bool(answer["seeds"] > 1)
        by_cuts = 1 + int((sign * answer["mean"] < cuts).sum())
        row["groups"][name] = of_rows.get(label, by_cuts)
        ends = sorted(float(f"{sign * answer[end]:.6g}") for end in ("low", "high"))
        row["ranges"][name] = [*ends, answer["rank_group"]]
        row["seeds"][name] = int(answer["seeds"])
