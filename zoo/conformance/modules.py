"""Linear layers as modules that others replace: adapters, hooks, pruning, quantisation."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from zoo.conformance.configuration import Configuration, Outcome, Setting, differ_by
from zoo.conformance.recurrence import prefilled
from zoo.conformance.tensors import distance, output
from zoo.contract import Attention

SETTINGS = Setting(training=True), Setting(rotary=True, short_conv=4)

RANK = 2

PROMPT = 140  # Tokens of the prompt; those after it are steps


class Adapted(nn.Module):
    """A linear layer with an adapter of low rank: base(x) + B A x, A and B normal."""

    def __init__(self, base: nn.Linear) -> None:
        # As in peft, the weight, bias and widths of `base` can be read.
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.in_features, self.out_features = base.in_features, base.out_features
        self.down = nn.Parameter(torch.randn(RANK, base.in_features) * base.in_features**-0.5)
        self.up = nn.Parameter(torch.randn(base.out_features, RANK))
        self.to(base.weight)

    def forward(self, x: Tensor, *others: Tensor | None) -> Tensor:
        return self.base(x, *others) + x @ self.down.mT @ self.up.mT


def check_called(configuration: Configuration) -> Outcome:
    """Every linear layer is called: with adapters the layer equals one with merged weights."""
    # In training and evaluation, with a context, and in decoding.
    distances = []
    for setting in map(configuration.accepted, SETTINGS):
        adapted, merged = with_adapters(configuration.layer_for(setting))
        if not any(isinstance(module, Adapted) for module in adapted.modules()):
            return Outcome(True, "no linear layer")
        x, crosses = setting.tokens(3), configuration.crosses and not setting.short_conv
        for context in (None, setting.tokens(3, 90, seed=3))[: 1 + crosses]:
            results = (setting.run(layer, x, None, context) for layer in (adapted, merged))
            distances += map(distance, *([each.tokens, *each.losses.values()] for each in results))
        if configuration.causal and configuration.variant.decodes():
            distances.append(distance(prefilled(adapted, x, (PROMPT,)), output(merged.eval(), x)))
    return differ_by(distances)


def with_adapters(layer: Attention) -> tuple[Attention, Attention]:
    for parameter in layer.parameters():
        if not parameter.any():
            nn.init.normal_(parameter, std=0.1)  # a factor of 0 would hide a layer
    merged = deepcopy(layer)
    for path, parent in [*layer.named_modules()]:
        # It reads the weight of its output projection, which PyTorch gives a class of its own.
        if isinstance(parent, nn.MultiheadAttention):
            continue
        for name, linear in [*parent.named_children()]:
            if isinstance(linear, nn.Linear):
                adapter = Adapted(linear)
                setattr(parent, name, adapter)
                weight = merged.get_parameter(f"{path}.{name}.weight".lstrip("."))
                weight.data += adapter.up @ adapter.down
    return layer, merged
