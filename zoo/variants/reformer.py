"""Reformer: attention among tokens that locality-sensitive hashing sorts next to each other.

Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer", ICLR 2020, arXiv 2001.04451,
section 2 and appendix A. Queries and keys share a projection, k = q / |q|. In each of several
rounds, with a random matrix R,

    h(x) = argmax([x R; -x R])                         the token's hash
    s = order of the tokens by (hash, position)        cut into chunks of `bucket` tokens
    P_i = tokens in the chunk of i and in the one before it

and with the union P of the rounds' sets, of which each member counts once,

    out_i = sum_{j in P} w_ij v_j / sum_{j in P} w_ij
    w_ij = exp(q_i . k_j / sqrt(e)), but exp(-1e5) for j = i: itself is a token's last resort

The paper weighs rounds by their partition functions and lowers each score by the logarithm of the
number of rounds that hold the pair. That is this union. It is computed by letting a pair speak in
the first round that holds it, with numerators and denominators summed over rounds under one
maximum a query.

Time O(rounds n (bucket e + log n)) and memory O(rounds n bucket) per head, but for the hashing. The
number of hashes is max_len / bucket, so that it takes time O(rounds n e max_len / bucket): a small
part, which yet is not linear, and no linear cost is claimed. Not causal: the sort lets a future
token move past ones across the border of a chunk.

Deviations: the number of hashes comes from `max_len`, and padded tokens sort behind all others,
so that padding moves neither a hash nor a border. The first chunk looks back at nothing, where
published code lets it look at the last. All heads share the rotations. Dropout falls on the
weights of all rounds alike.
"""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Size, Traits
from zoo.projected import ProjectedAttention
from zoo.registry import require_at_least
from zoo.variants import variants

SELF = -1e5


@variants.register("reformer")
class Reformer(ProjectedAttention):
    """Softmax attention restricted to tokens that share a neighbourhood under some hash.

    Axis letters beyond the contract's: `r` rounds, `s` slots of the sorted sequence, `t` chunks,
    `c` slots of a chunk, `w` slots that a chunk sees (2c), `f` random directions, `x` the width of
    what is put in order.
    """

    traits = Traits(causal=False, cross=False, linear=False, stochastic=True, recurrent=False)
    shared_qk = True
    # fp32 at least: rounding must neither move a hash nor the sums over rounds.
    upcast = True

    def __init__(self, size: Size, *, bucket: int = 64, hashes: int = 2) -> None:
        """Draw the rotations.

        Args:
            size: what every variant is built from.
            bucket: tokens of a chunk; from n on, the result is softmax attention with shared QK.
            hashes: rounds of hashing. Evaluation uses the rotations drawn here; training draws
                fresh ones in each forward from the default generator, as dropout does.

        Raises:
            UserError: `bucket` or `hashes` below 1.
        """
        super().__init__(size)
        require_at_least(1, "reformer", bucket=bucket, hashes=hashes)
        self.bucket = bucket
        directions = max(1, -(-size.max_len // (2 * bucket)))
        self.rotations: Tensor
        self.register_buffer("rotations", torch.randn(hashes, size.head_dim, directions))

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`; `k` is `q`."""
        n = q.shape[-2]
        bucket = min(self.bucket, n)
        tail = -n % bucket
        real = torch.ones(1, n, dtype=torch.bool, device=q.device) if mask is None else mask
        real = F.pad(real, (0, tail))
        q, v = (F.pad(part, (0, 0, 0, tail)) for part in (q, v))
        order = hash_order(q.detach(), real, self._rotations(q))
        dropout = self.size.dropout if self.training else 0.0
        return hashed_attention(q, v, real, order, bucket, dropout)[:, :, :n]

    def _rotations(self, like: Tensor) -> Float[Tensor, "r e f"]:
        if self.training:
            return torch.randn_like(self.rotations, dtype=like.dtype)
        return self.rotations.to(like.dtype)


def hash_order(
    q: Float[Tensor, "b h s e"], real: Bool[Tensor, "#b s"], rotations: Float[Tensor, "r e f"]
) -> Int[Tensor, "b h r s"]:
    """Tokens by (hash, position), one order a round; padded tokens stand last."""
    projected = torch.einsum("bhse,ref->bhrsf", q, rotations)
    hashes = torch.cat([projected, -projected], dim=-1).argmax(-1)
    last = 2 * rotations.shape[-1]
    return hashes.masked_fill(~real[:, None, None, :], last).argsort(dim=-1, stable=True)


def hashed_attention(
    q: Float[Tensor, "b h s e"],
    v: Float[Tensor, "b h s e"],
    real: Bool[Tensor, "#b s"],
    order: Int[Tensor, "b h r s"],
    bucket: int,
    dropout: float,
) -> Float[Tensor, "b h s e"]:
    """Softmax over the union of what each round's order shows, back in the order of the tokens."""
    slots = torch.arange(order.shape[-1], device=order.device).expand_as(order)
    rank = torch.zeros_like(order).scatter(-1, order, slots)
    queries, values = chunked(torch.cat([q, v], dim=-1), order, bucket).chunk(2, dim=-1)
    keys = look_back(F.normalize(queries, dim=-1))
    scores = (queries * q.shape[-1] ** -0.5) @ keys.mT
    scores = scores.masked_fill_(own(bucket, q.device), SELF)
    scores = scores.masked_fill_(hidden(real, order, rank, bucket), torch.finfo(scores.dtype).min)
    # One maximum a query for all rounds: it cancels in the ratio, and so needs no gradient.
    top = scores.detach().amax(-1).flatten(3).gather(-1, rank).amax(2)
    weights = (scores - chunked(top[..., None], order, bucket)).exp_()
    numerator = gathered(F.dropout(weights, dropout) @ look_back(values), rank)
    denominator = gathered(weights.sum(-1, keepdim=True), rank)
    return numerator / denominator


def hidden(
    real: Bool[Tensor, "#b s"],
    order: Int[Tensor, "b h r s"],
    rank: Int[Tensor, "b h r s"],
    bucket: int,
) -> Bool[Tensor, "#b #h #r t #c w"]:
    """Which of the slots in sight are no real tokens, or were seen in an earlier round."""
    slots = torch.arange(real.shape[-1], device=real.device).unflatten(0, (-1, bucket))
    sight = torch.cat([slots - bucket, slots], dim=-1)
    # Real tokens fill the front of every order.
    count = real.sum(-1)[:, None, None]
    void = ((sight < 0) | (sight >= count))[:, None, None, :, None, :]
    rounds = torch.arange(order.shape[2], device=order.device)[:, None, None, None]
    for early in range(len(rounds) - 1):
        seen = together((rank[:, :, early] // bucket).int(), order, bucket)
        void = void | (seen & (rounds > early))
    return void


def together(
    chunk_of: Int[Tensor, "b h s"], order: Int[Tensor, "b h r s"], bucket: int
) -> Bool[Tensor, "b h r t c w"]:
    """Whether a slot of `order` and one in its sight saw each other in the round of `chunk_of`."""
    chunk = chunked(chunk_of[..., None], order, bucket)
    other = look_back(chunk).mT
    return (other == chunk) | (other == chunk - 1)


def chunked(
    tokens: Shaped[Tensor, "b h s x"], order: Int[Tensor, "b h r s"], bucket: int
) -> Shaped[Tensor, "b h r t c x"]:
    """Tokens in the order of each round, cut into chunks."""
    rounds, width = order.shape[2], tokens.shape[-1]
    # Expanded first: backward, no two rounds then add to one place in an order of chance.
    source = tokens[:, :, None].expand(-1, -1, rounds, -1, -1)
    index = order[..., None].expand(-1, -1, -1, -1, width)
    return source.gather(3, index).unflatten(3, (-1, bucket))


def gathered(
    chunks: Float[Tensor, "b h r t c x"], rank: Int[Tensor, "b h r s"]
) -> Float[Tensor, "b h s x"]:
    """Chunks back in the order of the tokens, and summed over rounds."""
    index = rank[..., None].expand(-1, -1, -1, -1, chunks.shape[-1])
    return chunks.flatten(3, 4).gather(3, index).sum(2)


def look_back(chunks: Shaped[Tensor, "b h r t c x"]) -> Shaped[Tensor, "b h r t w x"]:
    """Each chunk after its predecessor; the first one's is the last, which `hidden` hides."""
    return torch.cat([chunks.roll(1, dims=3), chunks], dim=4)


def own(bucket: int, device: torch.device) -> Bool[Tensor, "c w"]:
    """Where a slot looks at itself."""
    slots = torch.arange(bucket, device=device)
    return slots[:, None] + bucket == torch.arange(2 * bucket, device=device)
