"""How far attention variants are from softmax attention with the same projections.

Published approximations of softmax are judged by the accuracy of models that are trained with them,
which says little about the approximation: the model adapts to it. Here the projections of a softmax
layer are given to the variant, and outputs, attention matrices and gradients are compared.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from harness import weights
from harness.layer_inputs import attentions, evenly_spaced, recorded
from harness.model import build_model
from harness.plan import Plan
from harness.records.approximation import Approximation
from zoo.contract import Attention, Unsupported
from zoo.library import create
from zoo.projected import ProjectedAttention
from zoo.size import Size
from zoo.variants.softmax import Softmax

WAVES = 8
"""Frequencies of a smooth input, from one period in the sequence on."""

KINDS = ("random", "smooth")


class Setting(NamedTuple):
    """The variant that is compared, and its size.

    Attributes:
        attention: its name.
        options: its options that differ from its defaults.
        dim: model width.
        heads: number of heads.
    """

    attention: str
    options: Mapping[str, Any]
    dim: int
    heads: int


class Distances(NamedTuple):
    """Squared errors and what each is relative to, of one sample; see `Approximation`."""

    output: tuple[float, float]
    weights: tuple[float, float]
    gradient: tuple[float, float]
    log_weights: tuple[float, float]
    positive: float


def on_generated_inputs(
    setting: Setting, lengths: Sequence[int], logits: Sequence[float], samples: int
) -> Iterator[Approximation]:
    """The errors on random and on smooth inputs, at each length and standard deviation of logits.

    Projections are those of a new layer of softmax; its queries are scaled to give the logits.

    Raises:
        UserError: the variant or an option is unknown.
        Unsupported: the variant has no projections of its own for queries, keys and values.
    """
    for kind in KINDS:
        for length in lengths:
            for deviation in logits:
                torch.manual_seed(0)
                reference = projected(
                    create("softmax", dim=setting.dim, heads=setting.heads, max_len=length)
                )
                x = generated_inputs(kind, samples, length, setting.dim)
                scale_logits(reference, x, deviation)
                layer = alike(reference, setting)
                each = [distances(layer, reference, one[None]) for one in x]
                yield _summary(setting, kind, length, deviation, each)


def on_inputs_of_run(
    plan: Plan, file: Path, setting: Setting, samples: int
) -> Iterator[Approximation]:
    """The errors in each layer of a trained model of softmax, on the inputs that it has on dev.

    Args:
        plan: of the run.
        file: its weights.
        setting: the variant; its size is that of the run.
        samples: examples of dev, evenly spaced.

    Raises:
        Unsupported: no layer of the run is softmax; see also `on_generated_inputs`.
    """
    model = build_model(plan.spec, plan.task).eval()
    weights.load(file, model)
    dev, name = plan.data.splits["dev"], plan.spec.attention
    with torch.no_grad(), recorded(model) as calls:
        for example in evenly_spaced(dev, samples):
            model(dev.gather(example[None]))
    layers = attentions(model)
    if not any(isinstance(layer, Softmax) for layer in layers):
        raise Unsupported(f"no layer of the run of {name} is softmax; give a run of softmax")
    for number, reference in enumerate(layers):
        if not isinstance(reference, Softmax):
            continue
        reference = projected(reference)
        layer, each, spreads, length = alike(reference, setting), [], [], 0
        for call in calls[number :: len(layers)]:
            for i, tokens in enumerate(call.x):
                x = tokens[None] if call.mask is None else tokens[None, call.mask[i]]
                each.append(distances(layer, reference, x))
                spreads.append(spread_of_logits(reference, x))
                length = max(length, x.shape[1])
        inputs = f"{plan.spec.task.name} {name}, layer {number + 1}"
        yield _summary(setting, inputs, length, sum(spreads) / len(spreads), each)


def generated_inputs(kind: str, samples: int, length: int, dim: int) -> Float[Tensor, "b n d"]:
    """Tokens of mean 0 and variance 1: independent, or sums of a few waves over the sequence."""
    if kind == "random":
        return torch.randn(samples, length, dim)
    amplitudes = torch.randn(2, samples, 1, dim, WAVES) / math.sqrt(WAVES)
    angles = 2 * math.pi * torch.arange(length)[:, None] / length * torch.arange(1, WAVES + 1)
    cosines, sines = (wave[None, :, None] for wave in (angles.cos(), angles.sin()))
    return (amplitudes[0] * cosines + amplitudes[1] * sines).sum(-1)


def scale_logits(layer: ProjectedAttention, x: Float[Tensor, "b n d"], deviation: float) -> None:
    """Scale the queries of a layer of softmax, so that its logits on `x` have that deviation."""
    factor = deviation / spread_of_logits(layer, x)
    with torch.no_grad():
        layer.query.weight.mul_(factor)
        layer.query.bias.mul_(factor)


def spread_of_logits(layer: ProjectedAttention, x: Float[Tensor, "b n d"]) -> float:
    """The standard deviation of q . k / sqrt(e) over all samples, heads and pairs of tokens."""
    heads = layer.size.heads
    with torch.no_grad():
        q, k = layer.query(x), layer.context(x).chunk(2, -1)[0]
        q, k = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (q, k))
        return (q @ k.mT / math.sqrt(q.shape[-1])).std().item()


def alike(reference: ProjectedAttention, setting: Setting) -> Attention:
    """A layer of the variant, of the size and with the projections of `reference`.

    Raises:
        Unsupported: it has no projections for queries, keys and values of its own.
    """
    size: Size = reference.size
    layer = create(
        setting.attention, dim=size.dim, heads=size.heads, max_len=size.max_len,
        causal=size.causal, rotary=size.rotary, **setting.options,
    )  # fmt: skip
    projected(layer).load_state_dict(reference.state_dict(), strict=False)
    return layer


def projected(layer: Attention) -> ProjectedAttention:
    """The layer, in evaluation mode.

    Raises:
        Unsupported: it has no projections for queries, keys and values of its own.
    """
    if not isinstance(layer, ProjectedAttention) or layer.shared_qk:
        raise Unsupported(
            f"{layer.name()} has no separate queries, keys and values as softmax has; nothing says "
            "what it would approximate"
        )
    return layer.eval()


def distances(layer: Attention, reference: Attention, x: Float[Tensor, "1 n d"]) -> Distances:
    """The errors of one sample.

    Raises:
        Unsupported: the layer has no attention matrix.
    """
    generator = torch.Generator().manual_seed(1)
    direction = torch.randn(x.shape, generator=generator)
    (output, gradient), (exact, exact_gradient) = (
        _output_and_gradient(one, x, direction) for one in (layer, reference)
    )
    matrix, softmax = (one.matrix(x, x, None) for one in (layer, reference))
    positive = (matrix > 0) & (softmax > 0)
    logarithms, of_softmax = (_centred_logarithms(one, positive) for one in (matrix, softmax))
    return Distances(
        output=_squares(output - exact, exact - exact.mean(1, keepdim=True)),
        weights=_squares(matrix - softmax, softmax - softmax.mean(-1, keepdim=True)),
        gradient=_squares(gradient - exact_gradient, exact_gradient),
        log_weights=_squares(logarithms - of_softmax, of_softmax),
        positive=positive.float().mean().item(),
    )


def _output_and_gradient(layer: Attention, x: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        output = layer(x).tokens
    (gradient,) = torch.autograd.grad(output, x, direction)
    return output.detach(), gradient


def _centred_logarithms(matrix: Tensor, where: Tensor) -> Tensor:
    """log(matrix) less its mean in each row, over the entries of `where`; 0 elsewhere."""
    logarithms = matrix.where(where, 1.0).log()
    mean = logarithms.sum(-1, keepdim=True) / where.sum(-1, keepdim=True).clamp_min(1)
    return (logarithms - mean).where(where, 0.0)


def _squares(error: Tensor, scale: Tensor) -> tuple[float, float]:
    return error.square().sum().item(), scale.square().sum().item()


def _summary(
    setting: Setting, inputs: str, length: int, logits: float, each: Sequence[Distances]
) -> Approximation:
    def ratio(parts: Sequence[tuple[float, float]]) -> float:
        error, scale = (sum(values) for values in zip(*parts, strict=True))
        return math.sqrt(error / scale) if scale else math.sqrt(error)

    return Approximation(
        attention=setting.attention,
        options={**setting.options},
        inputs=inputs,
        length=length,
        logits=logits,
        samples=len(each),
        output=ratio([one.output for one in each]),
        weights=ratio([one.weights for one in each]),
        gradient=ratio([one.gradient for one in each]),
        log_weights=ratio([one.log_weights for one in each])
        if any(one.positive for one in each)
        else None,
        positive=sum(one.positive for one in each) / len(each),
    )
