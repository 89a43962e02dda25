"""Costs against the number of tokens: page, figure, tables, from a frame of `harness cost`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pandas as pd

from harness.records.cost import batching_of
from harness.records.families import growth_of
from harness.records.suites import LAYERS, find
from reports import table
from reports.layer_costs import FORMS, PASSES, crossover, exponent
from reports.markdown import memory_of, rendered
from reports.table import Column, Table, grid, headed
from reports.text import NOTHING, number, outdated_text, plain, ratio_text, threads_of, whole_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MIB = 2**20
REASON = 80  # The most characters of a reason in a table

# What the costs of a sweep share.
SETTING = [
    "batching", "causal", "device", "dim", "heads", "level", "machine", "pass", "precision",
    "threads", "title",
]  # fmt: skip

CSV = table.values(
    "attention", "level", "pass", "task", "length", "batch", "batching", "dim", "heads", "causal",
    "precision", "device", "machine", "threads", "options", "status", "reason", "seconds.q1",
    "seconds", "seconds.q3", "ratio.q1", "ratio", "ratio.q3", "samples", "no_ratio", "peak_bytes",
    "flops", "analytic_flops", "computed_by", "backend", "required_bytes", "parameters",
    "state_bytes", "reference", "memory_batch", "memory", "memory_ratio", "flops_per_second",
    "bytes_per_second", "over_limit", "limit_flops_per_second", "limit_bytes_per_second", "commit",
    "outdated",
    seconds="seconds_median", ratio="ratio_median", memory="memory_bytes", **{"pass": "operation"},
)  # fmt: skip

Cost = Mapping[Any, Any]
LABEL = Column(name="label", heading="attention")

# The growth of the cost of one token, by the growth of the cost of all
OF_TOKEN = {"O(N)": "O(1)", "O(N log N)": "O(log N)", "O(N²)": "O(N)"}
ORDER = ("train", "decode", "prefill", "forward", "packed")

FITS = {
    "time": "time exponent", "memory": "{memory} exponent", "faster": "faster from",
    "smaller": "smaller from",
}  # fmt: skip

# The columns of the conclusions of a sweep, see `rows`.
ROWS = (
    LABEL,
    Column(name="claim", heading="claim"),
    Column(name="computed_by", heading="computed by"),
    *(
        Column(name=name, heading=heading, write=lambda fit: fit.text if fit else NOTHING)
        for name, heading in FITS.items()
    ),
    Column(name="over_limit", heading="× limit", write=ratio_text),
    Column(name="state", heading="state of a sample (bytes)", write=whole_text),
)


def sweeps(costs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    if costs.empty:
        return {}
    found = costs.assign(
        title=[_title(cost) for cost in costs.to_dict("records")],
        sample_seconds=costs["seconds"] / costs["batch"],
        sample_memory=costs["memory"] / costs["memory_batch"],
        flops_per_second=costs["flops"] / costs["seconds"],
        bytes_per_second=costs["required_bytes"] / costs["seconds"],
    )
    found = found.sort_values([*SETTING, "label", "length"])
    found = found.drop_duplicates(["title", "label", "length"], keep="last")
    return {str(title): sweep for title, sweep in found.groupby("title", sort=False)}


def rows(sweep: pd.DataFrame) -> pd.DataFrame:
    found = {label: _row(costs) for label, costs in sweep.groupby("label")}
    return pd.DataFrame.from_dict(found, orient="index")


def _row(costs: pd.DataFrame) -> dict[str, Any]:
    done = costs[costs["status"] == "ok"].set_index("length")
    related, memory = done.dropna(subset=["ratio"]), done["memory_ratio"].dropna()
    last: Cost = done.iloc[-1].to_dict() if len(done) else {}
    cost = costs.iloc[0]
    growth = growth_of(cost["attention"], linear=bool(cost["linear"]))
    return {
        "attention": cost["attention"],
        "claim": OF_TOKEN[growth] if cost["pass"] == "decode" else growth,
        "computed_by": last.get("computed_by", NOTHING),
        "time": exponent(done["sample_seconds"]), "memory": exponent(done["sample_memory"]),
        "faster": crossover(related["ratio.q1"], related["ratio.q3"]),
        "smaller": crossover(memory, memory),
        "longest": done.index.max() if last else 0, "seconds": last.get("seconds", 0.0),
        "over_limit": last.get("over_limit", math.nan),
        "state": last.get("state_bytes", math.nan) / last.get("batch", 1),
    }  # fmt: skip


def hint(costs: pd.DataFrame) -> str:
    suite, ours = find("laptop"), costs.iloc[0]
    plan, texts = suite.cost, list[str]()
    compared = ours["level"] == "layer" and ours["device"] == "cpu"
    for operation in plan.passes if compared else ():
        wanted = {"precision": plan.precision, "dim": plan.dim, "heads": plan.heads}
        flags = [f"--{name} {value}" for name, value in wanted.items() if value != ours[name]]
        if plan.batch[operation] != ours["batching"]:
            flags.insert(0, f"--batch {plan.batch[operation]}")
        if operation in {*costs["pass"]} and flags:
            texts.append(" ".join([f"--pass {operation}", *flags]))
    return f"To compare with the matrix of {suite.key}: {'; '.join(texts)}" if texts else ""


def failures(costs: pd.DataFrame) -> list[str]:
    found = costs[costs["status"] != "skipped"].to_dict("records")
    return [f"{of['label']} at {of['length']:,} tokens: {text}"
            for of in found if (text := problem(of))]  # fmt: skip


def problem(cost: Cost) -> str:
    if cost["status"] != "ok":
        return f"{cost['status'].replace('_', ' ')}: {cost['reason']}"
    return f"no ratio: {cost['no_ratio']}" if cost["no_ratio"] else ""


def references(sweep: pd.DataFrame) -> str:
    named = sweep[sweep["reference"] != ""].sort_values(["length", "reference"])
    named = named.drop_duplicates(["length", "reference"])
    texts = [
        f"{name} at {', '.join(f'{length:,}' for length in lengths)}"
        for name, lengths in named.groupby("reference", sort=False)["length"]
    ]
    return f"Fastest softmax: {'; '.join(texts)} tokens." if texts else ""


def text_of(cost: Cost, value: Callable[[Cost], str]) -> str:
    if cost["status"] == "skipped":
        return plain(cost["reason"], REASON)
    return value(cost) if cost["status"] == "ok" else cost["status"].replace("_", " ")


def files(costs: pd.DataFrame) -> dict[str, bytes]:
    from reports.figures import style

    if not (found := sweeps(costs)):
        return {}
    every, sections = headed(pd.concat(found.values()), CSV), []
    found = dict(sorted(found.items(), key=lambda item: _place(item[1].iloc[0])))
    for title, sweep in found.items():
        memory = memory_of(sweep["pass"].iloc[0])
        columns = [replace(of, heading=of.heading.format(memory=memory)) for of in ROWS]
        lines = rows(sweep).rename_axis("label").reset_index().to_dict("records")
        sections.append({
            "title": title, "references": references(sweep),
            "rows": Table(columns, lines).markdown(align_right=False),
            "time": _table(sweep, "seconds", 1000, "ratio"),
            "memory": _table(sweep, "memory", 1 / MIB, "memory_ratio"),
            "failures": failures(sweep), "memory_name": memory,
            "outdated": outdated_text(sweep, "measurements"),
        })  # fmt: skip
    page = rendered("cost.md.j2", sweeps=sections).encode()
    return {"cost.md": page, **style.table_with_images("cost", every, draw, found)}


def _place(cost: pd.Series) -> tuple[bool, int]:
    # Costs as the matrix has them are first, training before decoding.
    plan, operation = LAYERS, cost["pass"]
    usual = {"level": "layer", "device": "cpu", "precision": plan.precision, "dim": plan.dim,
             "heads": plan.heads, "batching": plan.batch.get(operation)}  # fmt: skip
    return any(cost[name] != value for name, value in usual.items()), ORDER.index(operation)


def lines(costs: pd.DataFrame) -> list[dict[Any, Any]]:
    found = []
    for sweep in sweeps(costs).values():
        fitted = rows(sweep)["time"].map(lambda fit: fit.value if fit else None)
        found.append(sweep.assign(time_exponent=sweep["label"].map(fitted)))
    if not found:
        return []
    return table.records(pd.concat(found), [*CSV, *table.values("time_exponent")])


def terminal(costs: pd.DataFrame) -> str:
    sections = []
    for title, sweep in sweeps(costs).items():
        fitted = {label: f"{row['time'].value:.2f}" if row["time"] else NOTHING
                  for label, row in rows(sweep).to_dict("index").items()}  # fmt: skip
        (label, *ratios), found = _grid(sweep, lambda cost: ratio_text(cost["ratio"]), str)
        shown = Table([
            replace(label, heading="time (× fastest softmax)"), *ratios,
            Column(name="time", heading="exponent", text=lambda of, fits=fitted: fits[of["label"]]),
        ], found)  # fmt: skip
        notes = [plain(text) for text in (references(sweep), *failures(sweep)) if text]
        sections.append("\n".join([plain(title), shown.terminal(), *notes]))
    note = outdated_text(costs, "measurements")
    return "\n\n".join(filter(None, [*sections, note])) or "no records"


def draw(found: Mapping[str, pd.DataFrame]) -> "Figure":
    from reports.figures import style

    measured = {title: of.loc[of["status"] == "ok", "length"] for title, of in found.items()}
    titles = [title for title, lengths in measured.items() if lengths.nunique() > 2]
    kinds = (
        ("milliseconds", "sample_seconds", "faster", 1000),
        ("", "sample_memory", "smaller", 1 / MIB),
    )
    panels = [*product(titles, kinds)][: style.MOST_PANELS]
    figure, axes = style.panels([3.4] * len(panels), 4.6)
    for panel, (title, kind) in zip(axes, panels, strict=True):
        style.heading(panel, *title.split(": ", 1))
        _panel(panel, found[title], *kind)
    return figure


def _panel(
    axes: "Axes", sweep: pd.DataFrame, name: str, column: str, crossing_of: str, scale: float
) -> None:
    import numpy as np

    from reports.figures import style

    done, crossings = sweep[sweep["status"] == "ok"], rows(sweep)[crossing_of]
    if column == "sample_seconds":
        done = _of_one_day(done)
    points = scale * done.pivot(index="length", columns="label", values=column)
    attention = sweep.drop_duplicates("label").set_index("label")["attention"]
    ordered = points.reindex(columns=attention.index).iloc[-1].sort_values(kind="stable").index
    styles, ends = style.point_styles((attention[label], label) for label in ordered), []
    for label in ordered:
        colour, marker = styles[label]
        costs, grey = points.get(label, points[:0].sum(axis=1)).dropna(), colour == style.FAINT
        axes.plot(costs.index, costs, color=colour, marker=marker, markersize=4,
                  zorder=2 - grey, label=style.label(label))  # fmt: skip
        if len(costs) and not grey:
            ends.append((costs.index[-1], costs.iloc[-1], style.label(label), colour))
        crossing = crossings[label]
        if crossing and not grey and 0 < crossing.low <= crossing.high < math.inf:
            length = (crossing.low * crossing.high) ** 0.5
            cost = math.exp(np.interp(math.log(length), np.log(costs.index), np.log(costs)))
            axes.plot(length, cost, "*", color=colour, markersize=11, markeredgecolor=style.GREY)
    name = name or f"{memory_of(sweep['pass'].iloc[0])}, MiB"
    axes.set(xscale="log", xlabel="tokens", ylabel=f"{name}, of a sample")
    style.token_ticks(axes, [*points.index], log=True)
    style.end_labels(axes, ends)


def _of_one_day(sweep: pd.DataFrame) -> pd.DataFrame:
    # Seconds of two days differ by more than ratios, which are of one process: the ratio times the
    # median seconds of softmax at the length.
    softmax = (
        (sweep["sample_seconds"] / sweep["ratio"]).groupby(sweep["length"]).transform("median")
    )
    return sweep.assign(sample_seconds=(sweep["ratio"] * softmax).fillna(sweep["sample_seconds"]))


def _title(cost: Cost) -> str:
    kind = PASSES.get(cost["pass"], cost["pass"])
    form = f", {FORMS[0 if cost['causal'] else 1]}" * (kind not in ("prefill", "decoding"))
    batch = "{}={}".format(*batching_of(cost["batching"]))
    # Positions are always learned.
    fields = {name: value for name, value in cost["model"].items() if name != "positions"}
    model = "".join(f", {name}={value}" for name, value in fields.items() if value)
    count = f", {threads_of(cost['threads'])}" if cost["device"] == "cpu" else ""
    of_task = f", {cost['task']}" * bool(cost["task"])
    return (
        f"{kind}, {cost['level']}{of_task}{form}: {batch}, dim={cost['dim']}, "
        f"heads={cost['heads']}{model}, {cost['precision']}; {cost['machine']}{count}"
    )


def _grid(
    sweep: pd.DataFrame, value: Callable[[Cost], str], heading: Callable[[int], str]
) -> Table:
    lengths = {length: heading(length) for length in sorted(sweep["length"].unique())}
    return grid(sweep, LABEL, lengths, "length", lambda cost: text_of(cost, value))


def _table(sweep: pd.DataFrame, column: str, scale: float, ratio: str) -> str:
    def text(cost: Cost) -> str:
        value = number(scale * cost[column])
        return value if pd.isna(cost[ratio]) else f"{value} ({ratio_text(cost[ratio])}×)"

    return _grid(sweep, text, "{:,}".format).markdown()
