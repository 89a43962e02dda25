"""The inputs of attention layers: in a model on examples of a split, or generated."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness.checkpoint import load_weights
from harness.data import restore
from harness.model import build_model
from harness.records.spec import RunSpec
from tasks.contract import Split
from zoo.contract import Attention, Unsupported
from zoo.library import create
from zoo.projected import ProjectedAttention

WAVES = 8  # Frequencies of a smooth input, from one period in the sequence on

KINDS = ("random", "smooth")
Layer = TypeVar("Layer", bound=Attention)


class Inputs(NamedTuple):
    # (b, n, d), and True for real tokens.

    x: Tensor
    mask: Tensor | None

    def sequences(self) -> Iterator[Tensor]:
        for number, x in enumerate(self.x):
            yield x[None] if self.mask is None else x[None, self.mask[number]]


def attentions(model: nn.Module) -> list[Attention]:
    found = {name: part for name, part in model.named_modules() if isinstance(part, Attention)}
    # Not the parts of an attention layer that are of the same type.
    inner = tuple(f"{name}." for name in found)
    return [part for name, part in found.items() if not name.startswith(inner)]


def inputs_of_layers(model: nn.Module, split: Split, samples: int) -> list[list[Inputs]]:
    # The examples are evenly spaced, the first and the last included; of one it is the first.
    examples = torch.linspace(0, len(split) - 1, min(samples, len(split))).long().unique()
    inputs: dict[nn.Module, list[Inputs]] = {layer: [] for layer in attentions(model)}

    def note(layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        inputs[layer].append(Inputs(arguments[0], arguments[2]))

    with ExitStack() as hooks, torch.no_grad():
        for layer in inputs:
            hooks.callback(layer.register_forward_pre_hook(note).remove)
        for example in examples:
            model(split.gather(example[None]))
    return [*inputs.values()]


def layers_of(
    spec: RunSpec, files: Mapping[int, Path], samples: int, kind: type[Layer],
    announce: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[int, int, Layer, list[Inputs]]]:  # fmt: skip
    # Yields the step, the number of the layer from 1, the layer, and its inputs on examples of dev.
    data = restore(spec)
    model = build_model(spec, data.task).eval()
    layers = attentions(model)
    if not any(isinstance(layer, kind) for layer in layers):
        run, name = spec.attention, kind.name()
        raise Unsupported(f"no layer of the run of {run} is {name}; give a run of {name}")
    for step, path in files.items():
        announce(f"step {step} of {max(files)}")
        load_weights(path, model)
        inputs = inputs_of_layers(model, data.splits["dev"], samples)
        for number, (layer, calls) in enumerate(zip(layers, inputs, strict=True), 1):
            if isinstance(layer, kind):
                yield step, number, layer, calls


def generated_inputs(kind: str, samples: int, length: int, dim: int) -> Float[Tensor, "b n d"]:
    # Mean 0 and variance 1: independent, or sums of a few waves over the sequence.
    if kind == "random":
        return torch.randn(samples, length, dim)
    amplitudes = torch.randn(2, samples, 1, dim, WAVES) / math.sqrt(WAVES)
    angles = 2 * math.pi * torch.arange(length)[:, None] / length * torch.arange(1, WAVES + 1)
    cosines, sines = (wave[None, :, None] for wave in (angles.cos(), angles.sin()))
    return (amplitudes[0] * cosines + amplitudes[1] * sines).sum(-1)


def scale_logits(layer: ProjectedAttention, x: Float[Tensor, "b n d"], deviation: float) -> None:
    factor = deviation / spread_of_logits(layer, x)
    with torch.no_grad():
        layer.query.weight.mul_(factor)
        layer.query.bias.mul_(factor)


def spread_of_logits(layer: ProjectedAttention, x: Float[Tensor, "b n d"]) -> float:
    heads = layer.size.heads
    with torch.no_grad():
        q, k = layer.query(x), layer.context(x).chunk(2, -1)[0]
        q, k = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k))
        return (q @ k.mT / math.sqrt(q.shape[-1])).std().item()


def projected(layer: Attention) -> ProjectedAttention:
    if not isinstance(layer, ProjectedAttention) or layer.shared_qk:
        raise Unsupported(
            f"{layer.name()} has no separate queries, keys and values as softmax has; nothing says "
            "what it would approximate"
        )
    return layer.eval()


def alike(reference: ProjectedAttention, name: str, options: Mapping[str, Any]) -> Attention:
    # With the projections of `reference`.
    size = reference.size
    layer = create(
        name, dim=size.dim, heads=size.heads, max_len=size.max_len, causal=size.causal,
        rotary=size.rotary, **options,
    )  # fmt: skip
    try:
        projected(layer).load_state_dict(reference.state_dict(), strict=False)
    except RuntimeError as error:
        message = f"{name} has projections of another size than softmax; give another variant"
        raise Unsupported(message) from error
    return layer
