"""The layer of Primal-Attention, its equations, and their comparison, for its tests.

The equations are evaluated for one sample and one head at a time, for queries of the tokens x and
keys of the tokens c, which are x in self-attention.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.zoo.oracle import DIM, HEADS, WIDTH, complex_rotation, size
from zoo.contract import Size
from zoo.variants.primal import Primal
from zoo.variants.primal_moments import PrimalMoments

OPTIONS = {"rank": 3, "rank_multi": 5, "eta": 0.7}


def build(form: str, max_len: int = 1000, *, rotary: bool = False, **options) -> Primal:
    sizes = size(max_len=max_len, causal=form.startswith("causal"), rotary=rotary)
    return make(form.removeprefix("causal "), sizes, **{**OPTIONS, **options}).double()


def make(form: str, size: Size, **options) -> Primal:
    if form == "moments":
        options.pop("rank_multi", None)
        return PrimalMoments(size, **options)
    return Primal(size, **options, **({} if form == "causal" else {"projections": form}))


def positions(n: int, count: int) -> list[int]:
    return [i * (n - 1) // (count - 1) if count > 1 else 0 for i in range(count)]


def scores(layer: Primal, x: Tensor, c: Tensor, head: int) -> tuple[Tensor, ...]:
    """e of the real tokens x and r of the real tokens c, and the W_e and W_r they come from."""
    part = slice(head * WIDTH, (head + 1) * WIDTH)
    q, k = layer.query_key(x)[:, :DIM][:, part], layer.query_key(c)[:, DIM:][:, part]
    if layer.size.rotary:
        q, k = complex_rotation(q), complex_rotation(k)
    moments = isinstance(layer, PrimalMoments)
    if layer.size.causal and not moments:
        steps = torch.arange(1, len(x) + 1, dtype=x.dtype)[:, None]
        q, k = q.cumsum(0) / steps, k.cumsum(0) / steps
    phi_q, phi_k = q / q.norm(dim=1, keepdim=True), k / k.norm(dim=1, keepdim=True)
    w_e, w_r = layer.directions[:, head]
    if moments:
        w_e, w_r = phi_k.T @ c[:, part] @ w_e / len(c), phi_q.T @ x[:, part] @ w_r / len(x)
    elif layer.projections == "dependent":
        w_e = c[positions(len(c), len(w_e))][:, part].T @ w_e
        w_r = x[positions(len(x), len(w_r))][:, part].T @ w_r
    return phi_q @ w_e, phi_k @ w_r, w_e, w_r


def real_tokens(sample: Tensor, mask: Tensor | None, b: int) -> Tensor:
    return sample if mask is None else sample[mask[b]]


def expected(layer: Primal, x: Tensor, c: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The output, zero at padded tokens, and eta J^2 in the order of averaging of `ksvd_mean`."""
    cross, out, sums = c is not x, torch.zeros_like(x), []
    for b in range(len(x)):
        keys = real_tokens(c[b], mask, b)
        queries = x[b] if cross else keys
        heads = [scores(layer, queries, keys, head) for head in range(HEADS)]
        rank = layer.directions.shape[-1]
        weight = layer.merge.weight[:, :rank] if cross else layer.merge.weight
        merged = [
            F.linear(e if cross else torch.cat([e, r], dim=1), weight, layer.merge.bias)
            for e, r, _, _ in heads
        ]
        tokens = layer.out(torch.cat(merged, dim=1))
        real = torch.arange(len(queries)) if cross or mask is None else mask[b].nonzero()[:, 0]
        out = out.index_put((torch.tensor(b), real), tokens)
        energies, traces = [], []
        for (e, r, w_e, w_r), scale, weights in zip(
            heads, layer.scales, layer.directions.unbind(1), strict=True
        ):
            energies.append(((e * scale) ** 2).sum() / 2 + ((r * scale) ** 2).sum() / 2)
            w_e, w_r = (w_e, w_r) if layer.trace == "data" else weights
            traces.append(torch.trace(w_e.T @ w_r))
        count = torch.tensor(len(queries) * len(keys)).double().sqrt()
        sums.append(torch.stack([torch.stack(energies).mean(), torch.stack(traces).mean(), count]))
    energy, trace, count = torch.stack(sums).unbind(1)
    j = energy / count - trace
    if layer.ksvd_mean == "batch":
        j = (energy.sum() / count.sum() - trace.mean())[None]
    return out, layer.eta * j.square().mean()


def agree(ours: Tensor, theirs: Tensor) -> None:
    difference = (ours - theirs).abs().max()
    assert theirs.abs().max() > 1e-6
    assert difference < 1e-10 * theirs.abs().max()


def agree_with_gradients(
    ours: Sequence[Tensor], theirs: Sequence[Tensor], leaves: Sequence[Tensor]
) -> None:
    for pair in zip(ours, theirs, strict=True):
        agree(*pair)
        weights = torch.randn(pair[0].shape).double()
        # Each by itself: a large gradient of one would hide a wrong one of another.
        options = {"retain_graph": True, "materialize_grads": True}
        slopes = [torch.autograd.grad((x * weights).sum(), leaves, **options) for x in pair]
        for slope, expected_slope in zip(*slopes, strict=True):
            error = (slope - expected_slope).abs().max()
            assert error <= 1e-10 * max(1, expected_slope.abs().max())
