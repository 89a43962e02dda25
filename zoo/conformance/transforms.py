"""Layers under the transforms of PyTorch: compiled, exported and vectorised calls."""

import warnings

import torch
from torch import Tensor
from torch.export import Dim, export
from torch.func import functional_call, stack_module_state, vmap

from zoo.conformance.configuration import Configuration, Outcome, differ_by
from zoo.conformance.determinism import seeded_results
from zoo.conformance.tensors import LENGTH, SCATTERED, distance, output, random_tokens, seeded
from zoo.contract import Attended
from zoo.registry import in_one_line

BACKENDS = "aot_eager", "inductor"  # Compilers, the fast one first

# Samples and tokens of the calls of a graph that is exported at others: fewer tokens than a block,
# and more than at its export.
SHAPES = (5, 2), (1, 37), (2, 160)


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
