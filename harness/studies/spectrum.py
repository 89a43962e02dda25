"""Spectra of attention matrices: how many directions attention uses, layer by layer.

The cumulative explained variance of an attention matrix with the singular values s_1 >= s_2 >= ...
is sum_(i <= r) s_i^2 / sum_i s_i^2, the share of its squared Frobenius norm in its best
approximation of rank r. Its effective rank is exp(H), H the entropy of the singular values as
shares of their sum (Roy and Vetterli, 2007, EUSIPCO).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import seaborn
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from harness.checkpoint import kept_runs
from harness.data import restore
from harness.layer_inputs import Inputs, layers_of
from harness.records.families import colour_of
from harness.records.results import Row
from harness.records.spec import RunSpec
from harness.records.store import Store
from harness.studies import Panel, Positive, Section, Study, Table, study
from zoo.contract import Attention, Unsupported

EVERY = 32  # Ranks up to which a spectrum has every one; then they are about a tenth apart
SHARES = (0.5, 0.9, 0.99)
LAYER = ["attention", "seed", "layer"]  # Columns that identify a layer of a run in a setting


@study
class Spectrum(Study):
    """Compute the spectra of the attention matrices of runs that kept their weights.

    Make such runs with: harness run --keep-checkpoints.

    Attributes:
        run: Names or paths of records; all runs with saved weights if none.
        samples: Examples of dev, evenly spaced.
    """

    run: Annotated[list[str] | None, {"argument": True}] = None
    samples: Positive = 8

    head = """\
# Spectra of attention matrices

The attention matrix holds the weights of softmax, or the product of the features for a linear
attention. For Primal-Attention it is the kernel Phi_q Phi_k^T. *Rank of 90 %* is the smallest
number of singular values whose squares sum to 90 % of all. The effective rank is exp(H), H the
entropy of the singular values as shares of their sum. Both are after training, on examples of dev:
the mean over heads and samples, with the standard deviation over the samples.
*At first* is the effective rank at the first step that the run kept.
"""

    def tables(self, store: Store) -> Iterator[Table]:
        for name, record, files in kept_runs(store, self.run or ()):
            spec, machine = record.spec, record.environment
            where = f"{spec.question.title}, {spec.device}: {machine.device}"
            if spec.device == "cpu":
                where += f", {machine.threads} thread{'s' * (machine.threads > 1)}"
            compute = partial(spectra, spec, files, self.samples, where)
            yield Table(name, {"samples": self.samples}, compute, record.started)

    @classmethod
    def frame(cls, folder: Path) -> pd.DataFrame:
        # A row for each rank of each layer at each step of each run.
        found = super().frame(folder)
        order = ["setting", *LAYER, "step"]
        return found if found.empty else found.sort_values(order, kind="stable")

    @classmethod
    def sections(cls, frame: pd.DataFrame) -> Iterator[Section]:
        for setting, group in frame.groupby("setting"):
            layers = [layer for _, layer in group.groupby(LAYER)]
            several = group["seed"].nunique() > 1
            table = pd.DataFrame([_line(rows, several=several) for rows in layers], dtype=object)
            reasons = [reason for reason in group["reason"].unique() if reason]
            yield Section(str(setting), table, "; ".join(reasons))

    @classmethod
    def panels(cls, frame: pd.DataFrame) -> Iterator[Panel]:
        for setting, group in frame[frame["rank"] > 0].groupby("setting"):
            entries = group["attention"].nunique() + group["layer"].nunique() + 2
            for draw in (_draw_explained, _draw_effective_rank):
                yield Panel(str(setting), partial(draw, group), entries)


def spectra(spec: RunSpec, files: Mapping[int, Path], samples: int, setting: str) -> Iterator[Row]:
    # In fp32, in evaluation mode, without the rows and columns of padded tokens. A layer without an
    # attention matrix has rank 0 and the reason.
    ranks = ranks_up_to(restore(spec).task.max_len)
    run = {"setting": setting, "attention": spec.row, "seed": spec.seed}
    for step, number, layer, calls in layers_of(spec, files, samples, Attention):
        where = {**run, "step": step, "layer": number, "variant": layer.name()}
        yield from ({**where, **values} for values in spectrum_of(layer, calls, ranks))


def ranks_up_to(limit: int) -> list[int]:
    ranks = [*range(1, min(EVERY, limit) + 1)]
    while ranks[-1] < limit:
        ranks.append(min(limit, ranks[-1] + ranks[-1] // 10))
    return ranks


def spectrum_of(layer: Attention, calls: Sequence[Inputs], ranks: Sequence[int]) -> list[Row]:
    # Means over heads and examples, standard deviations over examples.
    try:
        with torch.inference_mode():
            examples = [_of_example(layer, call, ranks) for call in calls]
    except Unsupported as error:
        return [_row(0, None, None, None, None, str(error))]
    explained, effective = (torch.stack(values) for values in zip(*examples, strict=True))
    whole = max(1.0, effective.mean().item()), effective.std(correction=0).item()
    means = explained.mean(0).clamp_max(1).tolist()
    each = zip(ranks, means, explained.std(0, correction=0).tolist(), strict=True)
    return [_row(*values, *whole, "") for values in each]


def _row(*values: Any) -> Row:
    names = ("rank", "explained_variance", "explained_variance_deviation", "effective_rank",
             "effective_rank_deviation", "reason")  # fmt: skip
    return dict(zip(names, values, strict=True))


def _of_example(layer: Attention, call: Inputs, ranks: Sequence[int]) -> tuple[Tensor, Tensor]:
    matrix = layer.matrix(call.x, call.x, call.mask)
    values = []
    for number, of_sequence in enumerate(matrix):
        real = slice(None) if call.mask is None else call.mask[number]
        values.append(explained_variance(of_sequence[:, real][:, :, real], ranks))
    explained, effective = (torch.stack(v).flatten(0, 1).mean(0) for v in zip(*values, strict=True))
    return explained, effective


def explained_variance(
    matrix: Float[Tensor, "*b n m"], ranks: Sequence[int]
) -> tuple[Float[Tensor, "*b r"], Float[Tensor, "*b"]]:
    # A rank above n or m has the value 1, and so has every rank of a matrix of zeros, whose
    # effective rank is 1.
    values = torch.linalg.svdvals(matrix)
    squares = values.square()
    # A matrix of zeros is explained by any direction.
    total = squares.sum(-1, keepdim=True)
    shares = torch.where(total > 0, squares.cumsum(-1) / total, 1.0)
    index = torch.tensor(ranks, device=matrix.device).clamp_max(values.shape[-1]) - 1
    sums = values.sum(-1, keepdim=True)
    shares_of_sum = torch.where(sums > 0, values / sums, 0.0)
    return shares[..., index].clamp_max(1), torch.special.entr(shares_of_sum).sum(-1).exp()


def _line(layer: pd.DataFrame, *, several: bool) -> dict[str, Any]:
    first, last = (layer[layer["step"] == step] for step in layer["step"].agg(["min", "max"]))
    end, start = last.iloc[0], first.iloc[0]["effective_rank"]
    seed = f" seed {end['seed']}" if several else ""
    line = {"run": f"{end['attention']}{seed}, layer {end['layer']}", "variant": end["variant"]}
    for share in SHARES:
        reached = last.loc[last["explained_variance"] >= share, "rank"]
        line[f"rank of {100 * share:g} %"] = reached.min()
    texts = {
        "effective rank": f"{end['effective_rank']:.1f} ± {end['effective_rank_deviation']:.1f}",
        "at first": f"{start:.1f}", "steps": end["step"],
    }  # fmt: skip
    return {**line, **(texts if end["rank"] else dict.fromkeys(texts))}


def _colours(group: pd.DataFrame) -> dict[str, Any]:
    names, found = pd.Series(group["attention"].unique()), dict[str, Any]()
    for colour, same in names.groupby(names.str.partition("[")[0].map(colour_of)):
        shades = seaborn.light_palette(str(colour), len(same) + 1, reverse=True)
        found |= dict(zip(same, shades, strict=False))
    return found


def _draw_explained(group: pd.DataFrame, axes: Axes) -> None:
    last, colours = group[group["step"] == group["step"].max()], _colours(group)
    _lines(last, "rank", "explained_variance", axes)
    for (attention, *_), layer in last.groupby(LAYER):
        mean, deviation = layer["explained_variance"], layer["explained_variance_deviation"]
        axes.fill_between(
            layer["rank"], mean - deviation, (mean + deviation).clip(upper=1), alpha=0.15,
            color=colours[attention], linewidth=0,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="rank", ylabel="explained variance", ylim=(0, 1.02))


def _draw_effective_rank(group: pd.DataFrame, axes: Axes) -> None:
    _lines(group.drop_duplicates([*LAYER, "step"]), "step", "effective_rank", axes)
    axes.set(xlabel="steps", ylabel="effective rank")


def _lines(rows: pd.DataFrame, x: str, y: str, axes: Axes) -> None:
    seaborn.lineplot(
        rows, x=x, y=y, hue="attention", style="layer", units="seed", estimator=None,
        palette=_colours(rows), ax=axes,
    )  # fmt: skip
