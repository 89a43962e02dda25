"""What the tests of Primal-Attention share: its layer, the sampling, and the comparison."""

import torch
from torch import nn

from tests.zoo.oracle import DIM, HEADS
from zoo.contract import Size
from zoo.variants.primal import Primal
from zoo.variants.primal_moments import PrimalMoments

OPTIONS = {"rank": 3, "rank_multi": 5, "eta": 0.7}


def build(form: str, max_len: int = 1000, **options) -> Primal:
    """A layer by its projections, `causal` for the published causal form."""
    causal = form.startswith("causal")
    size = Size(dim=DIM, heads=HEADS, max_len=max_len, causal=causal, dropout=0.0)
    return make(form.removeprefix("causal "), size, **{**OPTIONS, **options}).double()


def make(form: str, size: Size, **options) -> Primal:
    """A layer by its projections; moments have no sampled tokens."""
    if form == "moments":
        options.pop("rank_multi", None)
        return PrimalMoments(size, **options)
    return Primal(size, **options, **({} if form == "causal" else {"projections": form}))


def make_columns_orthonormal(layer: Primal) -> None:
    """Initialise W_e and W_r in a way that is not the published one: norm sqrt(s) in each head.

    Training fails with it: the KSVD loss is about s^2 times larger.
    """
    for side in layer.directions.data:
        for head in side:
            nn.init.orthogonal_(head)


def positions(n: int, count: int) -> list[int]:
    """`count` evenly spaced positions among n, the first and the last included."""
    return [i * (n - 1) // (count - 1) if count > 1 else 0 for i in range(count)]


def agree(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal to 1e-10 of the largest entry."""
    difference = (ours - theirs).abs().max()
    assert theirs.abs().max() > 1e-6
    assert difference < 1e-10 * theirs.abs().max()
