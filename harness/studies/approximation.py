"""Approximation of softmax: how far a variant is from softmax with the same projections.

Published approximations of softmax are judged by the accuracy of models that are trained with them,
which says little about the approximation: the model adapts to it. Here the projections of a softmax
layer are given to the variant, and outputs, attention matrices and gradients are compared.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated

import pandas as pd
import seaborn
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from harness import arguments, layer_inputs
from harness.checkpoint import KeptRun, kept_runs
from harness.provenance import majors_of
from harness.records.spec import label_of
from harness.records.store import Store
from harness.records.study import Row
from harness.studies import Announce, Panel, Positive, Section, Study, Table, study
from zoo.contract import Attention
from zoo.library import create
from zoo.registry import UserError, Value, resolve
from zoo.variants import variants
from zoo.variants.softmax import Softmax

LARGEST = 10_000  # Standard deviation of logits, at most

ERRORS = ("output_error", "weights_error", "gradient_error", "log_weights_error")

Options = Mapping[str, Value]


@study
class Approximation(Study):
    """Compare outputs, weights and gradients of a variant with softmax's.

    Both have the projections of the same layer. Inputs are random and smooth sequences, and with
    --run the hidden states of a trained model.

    Attributes:
        variant: A variant.
        over: NAME.OPTION=VALUE,VALUE,...; an option of the variant.
        set_: NAME.OPTION=VALUE; NAME is the variant; repeatable.
        lengths: Tokens, separated by commas.
        logits: Standard deviations of q k^T / sqrt(e).
        samples: Sequences, or examples of dev.
        dim: Model width.
        heads: Attention heads.
        run: A run of softmax with saved weights: its inputs as well.
    """

    variant: Annotated[str, {"argument": True}]
    over: str = ""
    set_: list[str] | None = None
    lengths: str = "128,512,2048"
    logits: str = "1,3"
    samples: Positive = 4
    dim: Positive = 64
    heads: Positive = 2
    run: str = ""

    head = """\
# Approximation of softmax attention

A layer of softmax gives its projections to the variant; both are called on the same tokens, without
padding and in evaluation mode. *Output*: the error of the layer's output, relative to softmax's
output without its mean over tokens: 1 is as far off as a constant output. *Weights*: the error of
the attention matrix, relative to the distance of softmax from uniform weights: 1 is as far off as
uniform weights, whose error is 1 by definition. *Gradient*: the relative error of the gradient of a
random linear function of the output by the input. *Log weights*: the relative error of the
logarithms of the weights, less their mean in each row, over the pairs of tokens with a positive
weight, whose share is *positive*. *Logits*: the standard deviation of q k^T / sqrt(e).
"""

    def tables(self, store: Store) -> Iterator[Table]:
        lengths = arguments.integers_in("lengths", self.lengths, range(2, 2**63), "128,512,2048")
        try:
            logits = [float(text) for text in arguments.names_in([self.logits])]
        except ValueError:
            logits = [0.0]
        if not all(0 < logit <= LARGEST for logit in logits):
            rule = f"are not positive numbers of at most {LARGEST}, as 1,3"
            raise UserError(f"logits {self.logits!r} {rule}")
        self.require_layer_fits(max(lengths), self.samples, self.dim, self.heads)
        chosen = options_of(self)
        runs = [*kept_runs(store, [self.run])] if self.run else []

        def rows(announce: Announce) -> Iterator[Row]:
            for options in chosen:
                for run in runs:
                    yield from on_run(run, self.variant, options, self.samples)
                for kind in layer_inputs.KINDS:
                    for length in lengths:
                        announce(f"{label_of(self.variant, options)}, {kind}, {length} tokens")
                        for deviation in logits:
                            yield generated(self, options, kind, length, deviation)

        since = max((run.record.started for run in runs), default="")
        # A result of other code is computed again.
        given = self.options() | majors_of([self.variant, "softmax"])
        yield Table("-".join([self.variant, *(run.name for run in runs)]), given, rows, since)

    @classmethod
    def sections(cls, frame: pd.DataFrame) -> Iterator[Section]:
        for inputs, rows in frame.groupby("inputs", sort=False):
            logits, positive = rows["logits"].map("{:.2g}".format), rows["positive_share"]
            table = rows[["options", "length"]].assign(logits=logits)
            for name in ERRORS:
                table[name.removesuffix("_error").replace("_", " ")] = rows[name]
            table["positive"] = positive.map(lambda share: f"{100 * share:.0f} %")
            table = table.rename(columns={"options": "variant", "length": "tokens"})
            yield Section(f"Inputs: {inputs}", table)

    @classmethod
    def panels(cls, frame: pd.DataFrame) -> Iterator[Panel]:
        for inputs, rows in frame.groupby("inputs", sort=False):
            entries = rows["options"].nunique() + rows["logits"].nunique() + 2
            yield Panel(str(inputs), partial(_draw, rows), entries)


def options_of(sizes: Approximation) -> list[dict[str, Value]]:
    name, settings = sizes.variant, arguments.settings_of(sizes.set_)
    varied = arguments.values_in("--over", [sizes.over] if sizes.over else [])
    owners = {*settings, *(field.partition(".")[0] for field in varied)}
    if others := sorted(owners - {name}):
        raise UserError(f"{others[0]!r} is not the variant; give options of {name}")
    fixed = settings.get(name, {})
    sets = [fixed]
    for field, values in varied.items():  # one, at most
        if (option := field.partition(".")[2]) in fixed:
            raise UserError(
                f"--set {field}={fixed[option]} gives an option that is varied; leave it out"
            )
        sets = [{**fixed, option: value} for value in values]
    complete = [(options, resolve(name, variants.find(name), options)) for options in sets]
    return [{name: whole[name] for name in options if name in whole} for options, whole in complete]


def generated(
    sizes: Approximation, options: Options, kind: str, length: int, deviation: float
) -> Row:
    # The queries of softmax are scaled for the logits.
    torch.manual_seed(0)
    softmax = create("softmax", dim=sizes.dim, heads=sizes.heads, max_len=length)
    reference = layer_inputs.projected(softmax)
    x = layer_inputs.generated_inputs(kind, sizes.samples, length, sizes.dim)
    layer_inputs.scale_logits(reference, x, deviation)
    layers = layer_inputs.alike(reference, sizes.variant, options), reference
    return _row(sizes.variant, options, kind, deviation, layers, x.split(1))


def on_run(run: KeptRun, name: str, options: Options, samples: int) -> Iterator[Row]:
    spec, last = run.record.spec, max(run.files)
    layers = layer_inputs.layers_of(spec, {last: run.files[last]}, samples, Softmax)
    for _, number, layer, calls in layers:
        reference = layer_inputs.projected(layer)
        compared = layer_inputs.alike(reference, name, options), reference
        xs = [x for call in calls for x in call.sequences()]
        spread = sum(layer_inputs.spread_of_logits(reference, x) for x in xs) / len(xs)
        where = f"{spec.task.name} {spec.attention}, layer {number}"
        yield _row(name, options, where, spread, compared, xs)


def distances(
    layer: Attention, reference: Attention, x: Float[Tensor, "1 n d"]
) -> tuple[dict[str, tuple[float, float]], float]:
    # Each squared, and what it is relative to; the positive share.
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    (output, gradient), (exact, exact_gradient) = (
        _output_and_gradient(which, x, direction) for which in (layer, reference)
    )
    matrix, softmax = (which.matrix(x, x, None) for which in (layer, reference))
    positive = (matrix > 0) & (softmax > 0)
    logs = [each.where(positive, 1.0).log() for each in (matrix, softmax)]
    count = positive.sum(-1, keepdim=True).clamp_min(1)
    logs = [(log - log.sum(-1, keepdim=True) / count).where(positive, 0.0) for log in logs]
    pairs = (
        (output - exact, exact - exact.mean(1, keepdim=True)),
        (matrix - softmax, softmax - softmax.mean(-1, keepdim=True)),
        (gradient - exact_gradient, exact_gradient),
        (logs[0] - logs[1], logs[1]),
    )
    squares = [(float(error.square().sum()), float(of.square().sum())) for error, of in pairs]
    errors = dict(zip(map(str, ERRORS), squares, strict=True))
    return errors, float(positive.float().mean())


def _output_and_gradient(layer: Attention, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = layer(x).tokens
    (gradient,) = torch.autograd.grad(output, x, direction)
    return output.detach(), gradient


def _row(
    name: str, options: Options, inputs: str, logits: float,
    layers: tuple[Attention, Attention], xs: Sequence[Tensor],
) -> Row:  # fmt: skip
    # Root mean squares.
    each = [distances(*layers, x) for x in xs]
    positive = sum(share for _, share in each) / len(each)
    errors: dict[str, float | None] = {}
    for error in ERRORS:
        squares, scales = (sum(values) for values in zip(*(s[error] for s, _ in each), strict=True))
        errors[error] = math.sqrt(squares / scales if scales else squares)
    if not positive:
        errors["log_weights_error"] = None
    return {
        "attention": name, "options": label_of(name, options), "inputs": inputs,
        "length": max(x.shape[1] for x in xs), "logits": logits, "samples": len(xs), **errors,
        "positive_share": positive,
    }  # fmt: skip


def _draw(rows: pd.DataFrame, axes: Axes) -> None:
    logits = rows["logits"].map("{:.2g}".format)
    lines = rows.assign(logits=logits).rename(columns={"options": "variant"})
    seaborn.lineplot(
        lines, x="length", y="output_error", hue="variant", style="logits", markers=True,
        errorbar=None, ax=axes,
    )  # fmt: skip
    axes.axhline(1, color="grey", linewidth=1, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(rows["length"].unique()), minor=False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="tokens", ylabel="error of the output", ylim=(0, None))
