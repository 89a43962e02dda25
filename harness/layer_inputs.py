"""The inputs of attention layers in a model, on examples of a split."""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness.checkpoint import load_weights
from harness.data import restore
from harness.model import attentions, build_model
from harness.records.spec import RunSpec
from tasks.contract import Split
from zoo.contract import Attention, Unsupported
from zoo.projected import ProjectedAttention

LOG = logging.getLogger(__name__)
Layer = TypeVar("Layer", bound=Attention)


class Inputs(NamedTuple):
    # (b, n, d), and True for real tokens.

    x: Tensor
    mask: Tensor | None

    def sequences(self) -> Iterator[Tensor]:
        for number, x in enumerate(self.x):
            yield x[None] if self.mask is None else x[None, self.mask[number]]


def inputs_of_layers(model: nn.Module, split: Split, samples: int) -> list[list[Inputs]]:
    # Examples are evenly spaced from the first to the last.
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
    spec: RunSpec, files: Mapping[int, Path], samples: int, kind: type[Layer]
) -> Iterator[tuple[int, int, Layer, list[Inputs]]]:  # fmt: skip
    # The step, the number of the layer from 1, the layer, and its inputs on examples of dev.
    data = restore(spec)
    model = build_model(spec, data.task).eval()
    layers = attentions(model)
    if not any(isinstance(layer, kind) for layer in layers):
        run, name = spec.attention, kind.name()
        raise Unsupported(f"no layer of the run of {run} is {name}; give a run of {name}")
    for step, path in files.items():
        LOG.info("step %s of %s", step, max(files))
        load_weights(path, model)
        inputs = inputs_of_layers(model, data.splits["dev"], samples)
        for number, (layer, calls) in enumerate(zip(layers, inputs, strict=True), 1):
            if isinstance(layer, kind):
                yield step, number, layer, calls


def scale_logits(layer: ProjectedAttention, x: Float[Tensor, "b n d"], deviation: float) -> None:
    heads = layer.size.heads
    with torch.no_grad():
        q, k = layer.query(x), layer.context(x).chunk(2, -1)[0]
        q, k = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, k))
        factor = deviation / (q @ k.mT / math.sqrt(q.shape[-1])).std()
        layer.query.weight.mul_(factor)
        layer.query.bias.mul_(factor)
