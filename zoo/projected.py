"""The projections around a mechanism that computes each head from queries, keys and values."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import (
    Attended,
    Attention,
    Context,
    Keys,
    Mask,
    Matrix,
    Positions,
    Queries,
    Size,
    State,
    Tokens,
    Unsupported,
    overrides,
)
from zoo.kernels import key_value_cache
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import count_after, positions_after, token_ranks
from zoo.projection import ShortConvolution
from zoo.recompute import in_parts

Values = Float[Tensor, "b h m w"]
"""Values, which may be wider than keys, or narrower."""
Outputs = Float[Tensor, "b h n w"]
Wide = Float[Tensor, "b h n _"]
"""Queries or outputs, of which a token may have several side by side."""

TOLERANCE = 1e-3
"""Relative and absolute, of the product of an attention matrix with the values."""


class ProjectedAttention(Attention):
    """The query, key, value and output projections around an inner `attend`.

    With `shared_qk` there is one projection for queries and keys (Reformer), and `attend` receives
    its result as both. A subclass with queries and keys of another width replaces `query` and
    `context`, with their convolutions.

    Attributes:
        caches: whether it decodes with a cache of keys and values (`zoo.kernels.key_value_cache`).
        sink_is_a_key: whether one more key, with a value of 0, is a learned sink: weights are a
            softmax.
        upcast: whether `attend` runs in fp32 at least, without autocast, as `recur` always does.
        batch_parts: see `zoo.recompute.in_parts`.
    """

    shared_qk: ClassVar[bool] = False
    caches: ClassVar[bool] = False
    sink_is_a_key: ClassVar[bool] = False
    upcast: ClassVar[bool] = False
    batch_parts: ClassVar[int] = 1

    def __init__(self, size: Size) -> None:
        """Make the projections, each (d -> d) with a bias."""
        super().__init__(size)
        dim = size.dim
        self.query, self.query_conv = nn.Linear(dim, dim), ShortConvolution(size, dim)
        # One product for what is computed from the context: key and value, or value alone.
        width = dim * (1 if self.shared_qk else 2)
        self.context, self.context_conv = nn.Linear(dim, width), ShortConvolution(size, width)
        self.out = nn.Linear(dim, dim)

    @classmethod
    def decodes(cls) -> bool:
        """See `Attention.decodes`."""
        return cls.caches or super().decodes()

    @property
    def dropout(self) -> float:
        """The dropout probability of attention weights in the current mode of the layer."""
        return self.size.dropout if self.training else 0.0

    @in_parts
    def forward(self, x: Tokens, context: Context | None = None, mask: Mask = None) -> Attended:
        """Project, `attend`, merge the heads, project the output; see `Attention.forward`."""
        context = x if context is None else context
        # Projections have no names here: unless stored, they are freed before heads are merged.
        heads = self.attend_in_precision(*self._project(x, context, mask), mask)
        return Attended(self._merge(x, heads))

    def attend_in_precision(self, q: Wide, k: Keys, v: Values, mask: Mask) -> Wide:
        """`attend`, in fp32 at least if `upcast`; the outputs have the dtype of the values."""
        if not self.upcast:
            return self.attend(q, k, v, mask)
        with full_precision(q, k, v) as (q32, k32, v32):
            return self.attend(q32, k32, v32, mask).to(v.dtype)

    @torch.no_grad()
    def matrix(self, x: Tokens, context: Context, mask: Mask) -> Matrix:
        """See `Attention.matrix`: the outputs of `attend` for the columns of the unit matrix.

        Raises:
            Unsupported: `attend` is not linear in its values.
        """
        self.require_context(x, context)
        q, k, v = self._project(x, context, mask)
        with full_precision(q, k, v) as (q, k, v):
            unit = torch.eye(v.shape[-2], dtype=v.dtype, device=v.device)
            pad = -len(unit) % v.shape[-1]
            blocks = F.pad(unit, (0, pad)).split(v.shape[-1], dim=1)
            columns = [self._seeded_attend(q, k, block.expand_as(v), mask) for block in blocks]
            matrix = torch.cat(columns, dim=-1)[..., : len(unit)]
            expected = self._seeded_attend(q, k, v, mask)
            # With an output for values of 0, or one that is not linear, it is no product.
            if not torch.allclose(matrix @ v, expected, rtol=TOLERANCE, atol=TOLERANCE):
                raise Unsupported(f"{self.name()} has no attention matrix: its heads are not "
                                  "linear in the values")  # fmt: skip
        return matrix

    def _seeded_attend(self, q: Queries, k: Keys, v: Values, mask: Mask) -> Tensor:
        with torch.random.fork_rng(devices=[q.device] if q.is_cuda else []):
            torch.manual_seed(0)
            return self.attend(q, k, v, mask)

    def analytic_flops(self, n: int) -> int | None:
        """See `Attention.analytic_flops`: the projections, and `head_flops` of every head."""
        of_head = self.head_flops(n)
        if of_head is None:
            return None
        width = self.query.out_features + self.context.out_features + self.size.dim
        return 2 * n * self.size.dim * width + self.size.heads * of_head

    def head_flops(self, n: int) -> int | None:
        """The operations of `analytic_flops` in `attend`, of one head."""
        return None

    def start(self, batch: int) -> State:
        """The number of tokens so far, the projections before, and the result of `begin`."""
        inner = self.begin(batch)
        past = self.zero_past(batch, self.query_conv, self.context_conv)
        return self.zero_state(batch).long(), *past, *inner

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        """Project, `recur` or `attend_after`, merge the heads; see `Attention.extend`."""
        (count, *rest), n = state, x.shape[1]
        one = n == 1 and real is None
        if not one and overrides(type(self), "recur", "attend_after"):
            return self._extend_by_step(x, real, state)
        past = len(self.query_conv.past_shapes())
        of_query, of_context = tuple(rest[:past]), tuple(rest[past : 2 * past])
        query, past_query = self.query_conv.extend(self.query(x), of_query, real)
        context, past_context = self.context_conv.extend(self.context(x), of_context, real)
        positions = positions_after(count, n)
        q, k, v = self._heads(query, context, positions, positions)
        with full_precision(q, k, v) as (q32, k32, v32):
            inner = tuple(rest[2 * past :])
            heads, inner = (self.recur(q32, k32, v32, inner) if one else
                            self.attend_after(q32, k32, v32, real, inner))  # fmt: skip
        state = count_after(count, n, real), *past_query, *past_context, *inner
        return self._merge(x, heads.to(v.dtype)), state

    @abstractmethod
    def attend(self, q: Queries, k: Keys, v: Values, mask: Mask) -> Outputs:
        """The output of each query; q and k are not scaled, `mask` is as in `Attention.forward`."""

    def begin(self, batch: int) -> State:
        """The state of `recur` before the first token of each of `batch` samples.

        With `caches` it is an empty cache.
        """
        if not self.caches:
            raise self._has_no_step()
        empty = self.zero_state(batch, self.size.heads, 0, self.size.head_dim)
        return key_value_cache.start(empty.to(self.parameter_dtype))

    def recur(self, q: Queries, k: Keys, v: Values, state: State) -> tuple[Outputs, State]:
        """The output of a causal `attend` at the next token, and the state after it.

        All arguments are in fp32 at least, and autocast is disabled. With `caches`, `weigh` gives
        the weights.
        """
        if not self.caches or overrides(type(self), "attend_after", "recur"):
            return self.attend_after(q, k, v, None, state)
        state = key_value_cache.append(state, k, v)
        scaled = q * self.size.head_dim**-0.5
        return key_value_cache.attend(state, scaled, self.weigh), state

    def weigh(self, products: Tensor, real: Tensor) -> Tensor:
        """The weights of the cached keys, from their products with a query and which are real."""
        return key_value_cache.softmax(products, real)

    def attend_after(
        self, q: Wide, k: Keys, v: Values, real: Mask, state: State
    ) -> tuple[Wide, State]:
        """The outputs of a causal `attend` at the next tokens, and the state after them.

        It is `recur` for many tokens, padded ones last; a variant has either or both.
        """
        if not self.caches:
            raise self._has_no_step()
        if not self.upcast:
            q, k, v = (part.to(state[0].dtype) for part in (q, k, v))
        *past, state = key_value_cache.extend(state, k, v, real)
        return key_value_cache.attend_after(self.attend, q, k, v, real, *past), state

    def _project(self, x: Tokens, context: Context, mask: Mask) -> tuple[Wide, Keys, Values]:
        # The positions of context tokens, where they differ from their indices.
        positions = token_ranks(mask) if self.size.rotary and mask is not None else None
        query = self.query_conv(self.query(x), mask if context is x else None)
        keys = self.context_conv(self.context(context), mask)
        return self._heads(query, keys, positions if context is x else None, positions)

    def _heads(
        self, query: Tokens, context: Tensor, of_query: Positions | None, of_key: Positions | None
    ) -> tuple[Queries, Keys, Values]:
        q = self.apply_rotary(self._split(query), of_query)
        if self.shared_qk:
            return q, q, self._split(context)
        k, v = context.split([query.shape[-1], self.size.dim], dim=-1)
        return q, self.apply_rotary(self._split(k), of_key), self._split(v)

    def _merge(self, x: Tokens, heads: Outputs) -> Tokens:
        return self.out(heads.transpose(1, 2).flatten(-2))

    def _split(self, tokens: Tokens) -> Queries:
        return tokens.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)
