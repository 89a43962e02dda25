"""Kernel SVD: does training with the KSVD loss approach the exact solution?

The scores of a layer of Primal-Attention span a subspace for each side. It is compared with the
first s singular vectors of the kernel matrix to which the objective J belongs (statement 15 of
`docs/primal.md`): the alignment is the mean squared cosine of their principal angles. `task` is to
reproduce the output of a layer of softmax on the same tokens. `reconstruction` is a control, whose
minimum is at the exact subspaces: 1 - |Q_e^T K Q_r|^2 / |K|^2, Q orthonormal bases of the scores.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from statistics import fmean
from typing import Annotated, Any

import pandas as pd
import seaborn
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from harness import arguments, layer_inputs
from harness.checkpoint import KeptRun, kept_runs
from harness.environment import majors_of
from harness.records.fields import require_known
from harness.records.results import Row
from harness.records.store import Store
from harness.studies import Panel, Positive, Section, Study, Table, study
from zoo import ksvd
from zoo.library import create
from zoo.registry import UserError, require_memory
from zoo.variants.primal import Primal
from zoo.variants.primal_forms import problem

LOG = logging.getLogger(__name__)
POINTS = 24  # Number of recorded steps, approximately; they are evenly spaced in the logarithm
LOGITS = 2.0  # The standard deviation of the logits of softmax in the task
SMALLEST = 1e-16  # The smallest J^2 that is drawn: smaller ones are rounding errors
LOSSES = ("ksvd", "task", "task+ksvd", "reconstruction")
CHOICES = {"trained": ("weights", "all"), "traces": ("weights", "data"), "losses": LOSSES}
TRAINED = {"weights": "queries and keys fixed", "all": "all parameters trained", "run": "a run"}


@study
class Ksvd(Study):
    """Compare the scores of Primal-Attention with the exact singular vectors during training.

    A layer is trained on fixed random tokens with the KSVD loss, a task, both, or a control. Shows
    the objective J and the alignment of subspaces.

    Attributes:
        losses: What is minimised, separated by commas.
        trained: weights: queries and keys are fixed; all; or both.
        traces: Traces of the objective.
        seeds: Seeds and ranges: 0-2,7.
        rank: Singular directions s.
        dim: Model width; the layer has one head.
        tokens: Tokens of a sequence.
        samples: Sequences, or examples of dev.
        steps: Steps of Adam.
        lr: Learning rate.
        run: A run of primal with saved weights instead: its layers.
    """

    losses: str = ",".join(LOSSES)
    trained: str = "weights"
    traces: str = "weights,data"
    seeds: str = "0,1,2"
    rank: Positive = 4
    dim: Positive = 32
    tokens: Annotated[int, {"min": 2}] = 64
    samples: Positive = 1
    steps: Annotated[int, {"min": 1, "max": 10**6}] = 300
    lr: Annotated[float, {"min": 1e-9, "max": 1}] = 0.01
    run: str = ""

    head = """\
# Does training approach the kernel SVD?

A layer of Primal-Attention is trained on a fixed input, or taken from a run at each kept step.
*ksvd* minimises the KSVD loss eta J² alone. *task* minimises the squared error to the output of a
layer of softmax on the same tokens (eta = 0), *task+ksvd* both. *reconstruction*, a control,
minimises the part of the kernel matrix K outside the subspaces that the scores span.

*Alignment* compares the span of the scores with the exact first s left or right singular vectors of
K. It is the mean squared cosine of their principal angles, mean of both sides. 1 is the exact
solution. *random* is the expectation for a uniformly random subspace of the span of the features.
The best constant output has a task loss of 1. Entries are means over the seeds, in brackets the
smallest and the largest. Statements 24 and 25 of docs/primal.md interpret the curves.
"""

    def tables(self, store: Store) -> Iterator[Table]:
        if self.run:
            (run,) = kept_runs(store, [self.run])
            rows = partial(on_run, run, self.samples)
            yield Table(run.name, {"samples": self.samples}, rows, run.record.started)
            return
        numbers = 4 * self.dim**2 + self.samples * self.tokens * (self.dim + self.tokens)
        what = f"dim={self.dim}, {self.samples} samples of {self.tokens} tokens"
        require_memory(4 * numbers, what, "lower one of them")
        if self.rank >= min(self.dim, self.tokens):
            raise UserError(
                f"rank {self.rank} of {self.dim} features and {self.tokens} tokens spans all "
                "singular vectors; give a smaller --rank"
            )
        axes: list[Any] = [arguments.names_in([getattr(self, axis)]) for axis in CHOICES]
        for (axis, values), names in zip(CHOICES.items(), axes, strict=True):
            require_known(f"value of --{axis}", names, values)
        seeds = arguments.seeds_in(self.seeds, range(2**31))

        def rows_of_all() -> Iterator[Row]:
            for choice in product(*axes, seeds):
                LOG.info(", ".join(map(str, choice)))
                yield from training(self, *choice)

        # A result of other code is computed again.
        yield Table("generated", self.options() | majors_of(["primal"]), rows_of_all)

    @classmethod
    def sections(cls, frame: pd.DataFrame) -> Iterator[Section]:
        for title, group in _groups(frame):
            text = (
                "Samples: {samples}, tokens: {tokens}, heads: {heads}, head width: {width}, rank: "
                "{rank}; alignment, random: {random_alignment:.3f}."
            ).format_map(group.iloc[0])
            lines = [_line(str(loss), rows) for loss, rows in group.groupby("loss", sort=False)]
            yield Section(title, pd.DataFrame(lines), text)

    @classmethod
    def panels(cls, frame: pd.DataFrame) -> Iterator[Panel]:
        for title, group in _groups(frame):
            yield Panel(title, partial(_draw, group, "J²"))
            yield Panel(title, partial(_draw, group, "alignment"))


def training(sizes: Ksvd, trained: str, trace: str, loss: str, seed: int) -> Iterator[Row]:
    # The target is the output of a layer of softmax, with mean 0 over tokens and variance 1.
    size: dict[str, Any] = {"dim": sizes.dim, "heads": 1, "max_len": sizes.tokens}
    torch.manual_seed(0)
    x = torch.randn(sizes.samples, sizes.tokens, sizes.dim).double()
    reference: Any = create("softmax", **size).double().eval()
    layer_inputs.scale_logits(reference, x, LOGITS)
    with torch.no_grad():
        target = reference(x).tokens
        target = target - target.mean((0, 1))
    target = target / target.square().mean().sqrt()
    torch.manual_seed(seed)
    layer: Any = create("primal", **size, rank=sizes.rank, trace=trace).double()
    layer.query_key.requires_grad_(trained == "all")
    where = {"inputs": "random", "trained": trained, "trace": trace, "loss": loss, "seed": seed}
    optimiser = torch.optim.Adam(layer.parameters(), lr=sizes.lr)
    for step in range(sizes.steps + 1):
        output = layer(x)
        task = (output.tokens - target).square().mean()
        if step in recorded_steps(sizes.steps):
            yield {**where, **state(layer, [x], step), "task_loss": task.item()}
        terms = {"task": task, **output.losses}
        if loss == "reconstruction":
            terms = {loss: reconstruction(layer, x)}
        optimiser.zero_grad()
        torch.stack([terms[name] for name in loss.split("+")]).sum().backward()
        optimiser.step()


def recorded_steps(steps: int) -> list[int]:
    return sorted({0, *(round(steps ** (i / POINTS)) for i in range(POINTS + 1))})


def on_run(run: KeptRun, samples: int) -> Iterator[Row]:
    spec = run.record.spec
    layers = layer_inputs.layers_of(spec, run.files, samples, Primal)
    for step, number, layer, calls in layers:
        xs = [x for call in calls for x in call.sequences()]
        yield {
            "inputs": f"{spec.task.name} {spec.attention}, layer {number}", "trained": "run",
            "trace": layer.trace, "loss": "run", "seed": spec.seed,
            **state(layer, xs, step), "task_loss": None,
        }  # fmt: skip


def state(layer: Primal, xs: list[Tensor], step: int) -> Mapping[str, Any]:
    # Means over tokens without padding.
    with torch.no_grad():
        sides = [alignments(layer, x) for x in xs]
        mean = fmean(objective(layer, x).mean().item() for x in xs)
    left, right = (fmean(values) for values in zip(*sides, strict=True))
    rank, width = layer.directions.shape[-1], layer.features
    return {
        "samples": sum(len(x) for x in xs), "tokens": max(x.shape[1] for x in xs),
        "heads": layer.size.heads, "width": width, "rank": rank, "step": step, "objective": mean,
        "left_alignment": left, "right_alignment": right,
        "random_alignment": min(1.0, rank / width),
    }  # fmt: skip


def _groups(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    sides = frame["left_alignment"], frame["right_alignment"]
    rows = frame.assign(alignment=sum(sides) / 2, **{"J²": frame["objective"] ** 2})
    for (inputs, trained, trace), group in rows.groupby(["inputs", "trained", "trace"], sort=False):
        yield f"{inputs}, {TRAINED[str(trained)]}, trace of the {trace}", group


def _line(loss: str, rows: pd.DataFrame) -> dict[str, Any]:
    steps = rows["step"].agg(["min", "max"]).set_axis(["start", "end"])
    line = {"loss": loss, "seeds": rows["seed"].nunique(), "steps": steps["end"]}
    for name, (end, step) in product(("J²", "alignment"), steps.items()):
        mean, *limits = rows.loc[rows["step"] == step, name].agg(["mean", "min", "max"])
        line[f"{name}, {end}"] = (mean, *limits) if line["seeds"] > 1 else mean
    tasks = pd.to_numeric(rows.loc[rows["step"] == steps["end"], "task_loss"])
    return {**line, "task loss, end": tasks.mean()}


def _draw(group: pd.DataFrame, name: str, axes: Axes) -> None:
    rows = group.assign(**{name: group[name].clip(lower=SMALLEST)})
    seaborn.lineplot(rows, x="step", y=name, hue="loss", errorbar=("pi", 100), ax=axes)
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="steps", ylabel=name, xlim=(0, None))
    if name == "alignment":
        axes.axhline(group["random_alignment"].iloc[0], color="grey", linewidth=1, label="random")
        axes.set_ylim(0, 1.02)
    else:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:.0e}")


def objective(layer: Primal, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h"]:
    # The layer's loss is eta times the square of their mean.
    phi, directions = problem(layer, x)
    e, r = (phi @ directions).unbind(1)
    energy = ksvd.energy_of_scores(e, r, layer.roots()) / x.shape[1]
    return energy - ksvd.trace(directions)


def bases(
    layer: Primal, x: Float[Tensor, "b n d"]
) -> tuple[Float[Tensor, "b c h f s"], Float[Tensor, "b c h f r"], Float[Tensor, "b h f g"]]:
    # Bases are coordinates in the span of the features of each side (c: query, key). The features
    # are constants: only the weights have gradients.
    phi, directions = problem(layer, x)
    phi = phi.detach()
    # K = Phi_q Phi_k^T = Q_q (R_q R_k^T) Q_k^T: its singular vectors are Q times vectors of a small
    # matrix, and scores are Q R W.
    r = torch.linalg.qr(phi)[1]
    kernel = r[:, 0] @ r[:, 1].mT
    u, _, vt = torch.linalg.svd(kernel)
    rank = min(directions.shape[-1], layer.features, x.shape[1])
    singular = torch.stack([u, vt.mT], dim=1)[..., :rank]
    return torch.linalg.qr(r @ directions)[0], singular, kernel


def alignments(layer: Primal, x: Float[Tensor, "b n d"]) -> tuple[float, float]:
    # Mean squared cosines of the principal angles, over samples and heads.
    scores, singular, _ = bases(layer, x)
    squares = (scores.mT @ singular).square().sum((-2, -1)) / singular.shape[-1]
    left, right = squares.mean((0, 2)).clamp_max(1).tolist()
    return left, right


def reconstruction(layer: Primal, x: Float[Tensor, "b n d"]) -> Float[Tensor, ""]:
    # The mean share of the kernel's squared norm outside the spans of the scores, in [0, 1].
    scores, _, kernel = bases(layer, x)
    within = scores[:, 0].mT @ kernel @ scores[:, 1]
    shares = within.square().sum((-2, -1)) / kernel.square().sum((-2, -1))
    return 1 - shares.mean()
