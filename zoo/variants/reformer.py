"""Reformer: attention among tokens that hashing sorts next to each other.

Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, arXiv 2001.04451,
section 2 and appendix A. Queries and keys share a projection, k = q / |q|. In each of several
rounds, with a random matrix R,

    h(x) = argmax([x R; -x R])                         the token's hash
    s = order of the tokens by (hash, position)        cut into chunks of `bucket` tokens
    P_i = tokens in the chunk of i and in the one before it

and with the union P of the rounds' sets, where each member counts once,

    out_i = sum_{j in P} w_ij v_j / sum_{j in P} w_ij
    w_ij = exp(q_i . k_j / sqrt(e)), but exp(-1e5) for j = i: only used if there is no other key

The paper weights rounds by their partition functions and lowers each score by the logarithm of the
number of rounds that contain the pair, which equals this union. Here a pair counts in the first
round that contains it, and numerators and denominators are summed over rounds under one maximum
per query.

Time O(rounds n (bucket e + log n)) and memory O(rounds n bucket) per head, without the hashing. The
number of hashes is max_len / bucket, so that it takes time O(rounds n e max_len / bucket): a small
part, but not linear, and no linear cost is claimed. Not causal: the sort depends on future tokens.

Deviations: the number of hashes comes from `max_len`, and padded tokens sort after all others,
so that padding changes neither a hash nor a chunk. The first chunk has no previous one, where in
published code it is the last. All heads share the rotations. Dropout is applied to the weights of
all rounds alike.
"""

from functools import partial

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Count, Keys, Mask, Queries, Size, Traits
from zoo.kernels.blocks import block_size
from zoo.projected import ProjectedAttention
from zoo.recompute import sample_by_sample
from zoo.variants import variants

SELF_SCORE = -1e5

Order = Int[Tensor, "b h r s"]
Slots = Float[Tensor, "b h s e"]
Real = Bool[Tensor, "#b s"]


@variants.register("reformer")
class Reformer(ProjectedAttention):
    """Softmax attention restricted to tokens whose hashes are equal or neighbouring.

    Axis letters beyond the contract's: `r` rounds, `s` slots of the sorted sequence, `t` chunks,
    `c` slots of a chunk, `w` slots that a chunk attends to (2c), `f` random directions, `x` the
    width of what is sorted.

    Args:
        bucket: tokens of a chunk; from n on, the result is softmax attention with shared QK.
        hashes: rounds of hashing. Evaluation uses the rotations drawn here; training draws
            fresh ones in each forward from the default generator, as dropout does.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=False, stochastic=True, recurrent=False)
    family = "sparse"
    drops_weights = True
    shared_qk = True
    # fp32 at least: rounding must change neither a hash nor the sums over rounds.
    upcast = True

    def __init__(self, size: Size, *, bucket: Count = 64, hashes: Count = 2) -> None:
        super().__init__(size)
        self.bucket = bucket
        directions = max(1, -(-size.max_len // (2 * bucket)))
        self.rotations: Tensor
        self.register_buffer("rotations", torch.randn(hashes, size.head_dim, directions))

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        n = q.shape[-2]
        bucket = block_size(self.bucket, n)
        # In an exported graph more than any length: then no length is a special case.
        limit = self.size.max_len + 1 if torch.compiler.is_exporting() else n
        tail = -(-limit // bucket) * bucket - n
        real = torch.ones(1, n, dtype=torch.bool, device=q.device) if mask is None else mask
        rotations = self.rotations.to(q.dtype)
        if self.training:
            rotations = torch.randn_like(rotations)
        options = {"rotations": rotations, "bucket": bucket, "dropout": self.dropout}
        q, v = (F.pad(part, (0, 0, 0, tail)) for part in (q, v))
        real = F.pad(real, (0, tail))
        return sample_by_sample(partial(hashed_attention, **options), q, v, real)[:, :, :n]


def hash_order(q: Slots, real: Real, rotations: Float[Tensor, "r e f"]) -> Order:
    # By (hash, position), one order per round; padded tokens come last.
    projected = torch.einsum("bhse,ref->bhrsf", q, rotations)
    hashes = torch.cat([projected, -projected], dim=-1).argmax(-1)
    last = 2 * rotations.shape[-1]
    return hashes.masked_fill(~real[:, None, None, :], last).argsort(dim=-1, stable=True)


def hashed_attention(
    q: Slots, v: Slots, real: Real, *, rotations: Float[Tensor, "r e f"], bucket: int,
    dropout: float,
) -> Slots:  # fmt: skip
    # Over the union of the keys of all rounds, in the order of the tokens.
    order = hash_order(q.detach(), real, rotations)
    slots = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    rank = torch.zeros_like(order).scatter(-1, order, slots)
    queries, values = chunked(torch.cat([q, v], dim=-1), order, bucket).chunk(2, dim=-1)
    keys = with_previous(F.normalize(queries, dim=-1))
    scores = (queries * q.shape[-1] ** -0.5) @ keys.mT
    nearby = torch.arange(2 * bucket, device=q.device)
    scores = scores.masked_fill_(nearby == nearby[bucket:, None], SELF_SCORE)
    scores = scores.masked_fill_(excluded(real, order, rank, bucket), torch.finfo(scores.dtype).min)
    # One maximum per query for all rounds: it cancels in the ratio, and so needs no gradient.
    maximum = scores.detach().amax(-1).flatten(3).gather(-1, rank).amax(2)
    weights = (scores - chunked(maximum[..., None], order, bucket)).exp_()
    numerator = sum_over_rounds(F.dropout(weights, dropout) @ with_previous(values), rank)
    denominator = sum_over_rounds(weights.sum(-1, keepdim=True), rank)
    return numerator / denominator


def excluded(real: Real, order: Order, rank: Order, bucket: int) -> Bool[Tensor, "#b #h #r t #c w"]:
    # Slots that are not real tokens, or form a pair that an earlier round contains.
    slots = torch.arange(real.shape[-1], device=real.device).unflatten(0, (-1, bucket))
    nearby = torch.cat([slots - bucket, slots], dim=-1)
    # Real tokens come first in every order.
    count = real.sum(-1)[:, None, None]
    masked = ((nearby < 0) | (nearby >= count))[:, None, None, :, None, :]
    rounds = torch.arange(order.shape[2], device=order.device)[:, None, None, None]
    for earlier in range(len(rounds) - 1):
        chunk = chunked((rank[:, :, earlier, :, None] // bucket).int(), order, bucket)
        other = with_previous(chunk).mT
        repeated = (other == chunk) | (other == chunk - 1)
        masked = masked | (repeated & (rounds > earlier))
    return masked


def chunked(
    tokens: Shaped[Tensor, "b h s x"], order: Order, bucket: int
) -> Shaped[Tensor, "b h r t c x"]:
    rounds, width = order.shape[2], tokens.shape[-1]
    # Expanded first, or the backward pass would add up rounds in a random order.
    source = tokens[:, :, None].expand(-1, -1, rounds, -1, -1)
    index = order[..., None].expand(-1, -1, -1, -1, width)
    return source.gather(3, index).unflatten(3, (-1, bucket))


def sum_over_rounds(chunks: Float[Tensor, "b h r t c x"], rank: Order) -> Float[Tensor, "b h s x"]:
    index = rank[..., None].expand(-1, -1, -1, -1, chunks.shape[-1])
    return chunks.flatten(3, 4).gather(3, index).sum(2)


def with_previous(chunks: Shaped[Tensor, "b h r t c x"]) -> Shaped[Tensor, "b h r t w x"]:
    # The first chunk's predecessor is the last, which `excluded` masks.
    return torch.cat([chunks.roll(1, dims=3), chunks], dim=4)
