"""A layer is one graph of `torch.export`, whatever the batch and the number of tokens."""

import warnings

import torch
from torch import Tensor
from torch.export import Dim, export

from zoo.conformance.configuration import Configuration, Outcome, differ_by
from zoo.conformance.tensors import LENGTH, distance, random_tokens, seeded
from zoo.contract import Attended

SHAPES = (5, 2), (1, 37), (2, 160)
"""Samples and tokens of the calls of a graph that is exported at others: fewer tokens than a block,
and more than at its export."""


def check_export(configuration: Configuration) -> Outcome:
    """The evaluation of `export(layer, (x,))` at other batches and lengths, unpadded and padded.

    Exports take seconds: with padding, that of one form; the other one has the same padding.
    """
    layer, distances = configuration.layer().eval(), []
    for padded in (False,) if configuration.repeats else (False, True):
        x, keywords = _inputs(3, LENGTH, padded)
        dynamic = {name: {0: Dim.DYNAMIC, 1: Dim.DYNAMIC} for name in ("x", *keywords)}
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
    """Tokens, and a mask by which every third one is padded, if any."""
    mask = torch.arange(n) % 3 != torch.arange(samples)[:, None] % 3
    return random_tokens(samples, n), {"mask": mask} if padded else {}
