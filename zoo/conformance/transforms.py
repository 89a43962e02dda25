"""Layers in the hands of others: compiled, exported and vectorised calls, and adapters."""

import warnings
from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.export import Dim, export
from torch.func import functional_call, stack_module_state, vmap

from zoo.conformance.configuration import Configuration, Outcome, Setting, differ_by
from zoo.conformance.determinism import seeded_results
from zoo.conformance.recurrence import prefilled
from zoo.conformance.tensors import LENGTH, SCATTERED, distance, output, random_tokens, seeded
from zoo.contract import Attended, Attention
from zoo.registry import in_one_line

BACKENDS = "aot_eager", "inductor"  # Compilers, the fast one first

# Samples and tokens of the calls of a graph that is exported at others: fewer tokens than a block,
# and more than at its export.
SHAPES = (5, 2), (1, 37), (2, 160)

ADAPTED = Setting(training=True), Setting(rotary=True, short_conv=4)

RANK = 2  # Of an adapter

PROMPT = 140  # Tokens of the prompt; those after it are steps


def check_compile(configuration: Configuration) -> Outcome:
    """One graph through `torch.compile`: evaluation, and padded training with its gradients."""
    # A backend that raises may be at fault itself, as `aot_eager` where a decomposition has other
    # strides than the kernel: a layer passes if the next backend compiles it.
    raised = []
    for backend in BACKENDS:
        try:
            outcome = differ_by(_compiled_distances(configuration, backend))
        except Exception as error:
            raised.append(f"{backend} cannot compile it ({in_one_line(error)})")
        else:
            return outcome._replace(detail="; ".join([f"{backend}: {outcome.detail}", *raised]))
    return Outcome(False, "; ".join(raised))


def _compiled_distances(configuration: Configuration, backend: str) -> list[float]:
    x, distances = random_tokens(3).requires_grad_(), []
    for mask, training in ((None, False), (SCATTERED, True)):
        torch.compiler.reset()
        layer = configuration.layer(short_conv=4 if training else 0).train(training)
        compiled = torch.compile(layer, fullgraph=True, backend=backend)
        with warnings.catch_warnings(), torch.set_grad_enabled(training):
            # How the compiler traces a function is no matter; warnings of the variant are shown.
            warnings.filterwarnings("ignore", module=r"torch\._(dynamo|functorch)")
            results = (seeded_results(layer, run, x, mask) for run in (compiled, layer))
            distances += map(distance, *results)
    return distances


def check_vmap(configuration: Configuration) -> Outcome:
    """`torch.func.vmap` over sets of parameters gives the output of each, padded or not."""
    layers = [configuration.layer(short_conv=4, seed=seed).eval() for seed in (1, 2)]
    if not layers[0].state_dict():
        return Outcome(True, "no parameters that could differ")
    x, state = random_tokens(3), stack_module_state(layers)

    def error(mask: Tensor | None) -> float:
        def attend(*state: dict[str, Tensor]) -> Tensor:
            return functional_call(layers[0], state, (x, x, mask)).tokens

        expected = torch.stack([output(layer, x, mask) for layer in layers])
        return distance(vmap(attend)(*state), expected)

    with warnings.catch_warnings():
        # A kernel without a batching rule is slower, and warns, but is correct.
        warnings.simplefilter("ignore")
        return differ_by([error(None), error(SCATTERED)])


def check_export(configuration: Configuration) -> Outcome:
    """The evaluation of `export(layer, (x,))` at other batches and lengths, unpadded and padded."""
    # The dimensions are declared as in `docs/library.md`: any batch, and up to `max_len` tokens.
    # Exports take seconds: with padding for one form; the other form has the same padding.
    layer, distances = configuration.layer().eval(), []
    repeats = configuration.causal and configuration.traits.bidirectional
    for padded in (False,) if repeats else (False, True):
        x, keywords = _inputs(3, LENGTH, padded)
        sizes = {0: Dim("batch"), 1: Dim("length", max=layer.size.max_len)}
        dynamic = dict.fromkeys(("x", *keywords), sizes)
        with warnings.catch_warnings():
            # How the exporter traces a function is no matter; warnings of the variant are shown.
            warnings.filterwarnings("ignore", module=r"torch\.")
            graph = export(layer, (x,), keywords, dynamic_shapes=dynamic).module()
        for shape in SHAPES:
            x, keywords = _inputs(*shape, padded)
            real = keywords.get("mask", ...)
            results: list[Attended] = []
            for run in (graph, layer):
                with seeded(2):
                    results.append(run(x, **keywords))
            distances.append(distance(*(result.tokens[real] for result in results)))
    return differ_by(distances)


def _inputs(samples: int, n: int, padded: bool) -> tuple[Tensor, dict[str, Tensor]]:
    mask = torch.arange(n) % 3 != torch.arange(samples)[:, None] % 3
    return random_tokens(samples, n), {"mask": mask} if padded else {}


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
    for setting in map(configuration.accepted, ADAPTED):
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
