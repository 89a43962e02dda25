"""The projections around a mechanism that works head by head on queries, keys and values."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Size, State, Unsupported
from zoo.kernels.real_tokens import token_ranks


class ProjectedAttention(Attention):
    """Owns the query, key, value and output projections round an inner `attend`.

    With `shared_qk` there is one projection for queries and keys (Reformer), and `attend` receives
    it as both.
    """

    shared_qk: ClassVar[bool] = False

    upcast: ClassVar[bool] = False
    """Whether `attend` gets fp32 at least, with autocast off, as `recur` always does."""

    def __init__(self, size: Size) -> None:
        """Make the projections, each (d -> d) with a bias.

        Raises:
            Unsupported: `size` asks for causality, which this variant does not claim.
        """
        super().__init__(size)
        self.query = nn.Linear(size.dim, size.dim)
        # One product for what is read from the context: key and value, or value alone.
        self.context = nn.Linear(size.dim, size.dim * (1 if self.shared_qk else 2))
        self.out = nn.Linear(size.dim, size.dim)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """Project, attend head by head, merge the heads, project back; see `Attention.forward`."""
        if not self.traits.cross:
            self.require_self(x, context)
        n, m = x.shape[1], context.shape[1]
        if self.size.causal and n != m:
            raise Unsupported(
                f"causal {self.name()} got {n} queries and {m} keys; give as many keys as queries"
            )
        place = token_ranks(mask) if self.size.rotary and mask is not None else None
        return Attended(self._merge(self.mix(*self._project(x, context, place), mask)))

    def start(self, batch: int) -> State:
        """How many tokens came, and what `begin` gives; see `Attention.start`."""
        inner = self.begin(batch)
        return self.zero_state(batch).long(), *inner

    def step(self, x: Float[Tensor, "b d"], state: State) -> tuple[Float[Tensor, "b d"], State]:
        """Project the token, `recur`, merge the heads, project back; see `Attention.step`."""
        seen, *inner = state
        token = x[:, None]
        q, k, v = self._project(token, token, seen[:, None])
        dtype, upcast = v.dtype, torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            heads, inner = self.recur(q.to(upcast), k.to(upcast), v.to(upcast), tuple(inner))
        return self._merge(heads.to(dtype))[:, 0], (seen + 1, *inner)

    def mix(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """`attend`, in the precision that it wants."""
        if not self.upcast:
            return self.attend(q, k, v, mask)
        upcast = torch.promote_types(v.dtype, torch.float32)
        with torch.autocast(v.device.type, enabled=False):
            return self.attend(q.to(upcast), k.to(upcast), v.to(upcast), mask).to(v.dtype)

    @abstractmethod
    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """Mix values for every query; q, k come unscaled, `mask` is as in `Attention.forward`."""

    def begin(self, batch: int) -> State:
        """What `recur` needs before the first token of each of `batch` samples.

        Raises:
            Unsupported: the variant is not recurrent, or this layer is not causal.
        """
        raise self._no_recurrence()

    def recur(
        self,
        q: Float[Tensor, "b h 1 e"],
        k: Float[Tensor, "b h 1 e"],
        v: Float[Tensor, "b h 1 e"],
        state: State,
    ) -> tuple[Float[Tensor, "b h 1 e"], State]:
        """What `attend` gives, causal, at the next token, and the state behind it.

        Everything comes in fp32 at least, with autocast off.

        Raises:
            Unsupported: the variant is not recurrent.
        """
        raise self._no_recurrence()

    def _project(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        place: Int[Tensor, "b m"] | None = None,
    ) -> tuple[Float[Tensor, "b h n e"], Float[Tensor, "b h m e"], Float[Tensor, "b h m e"]]:
        """Queries, keys and values, head by head; `place` is where the context's tokens stand."""
        q = self.apply_rotary(self._split(self.query(x)), place if context is x else None)
        if self.shared_qk:
            return q, q, self._split(self.context(context))
        k, v = self.context(context).chunk(2, dim=-1)
        return q, self.apply_rotary(self._split(k), place), self._split(v)

    def _merge(self, heads: Float[Tensor, "b h n e"]) -> Float[Tensor, "b n d"]:
        return self.out(heads.transpose(1, 2).flatten(-2))

    def _split(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n e"]:
        return tokens.unflatten(-1, (self.size.heads, self.size.head_dim)).transpose(1, 2)
