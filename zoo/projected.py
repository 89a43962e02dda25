"""The projections around a mechanism that works head by head on queries, keys and values."""

from abc import abstractmethod
from typing import ClassVar

from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Size


class ProjectedAttention(Attention):
    """Owns the query, key, value and output projections round an inner `attend`.

    With `shared_qk` there is one projection for queries and keys (Reformer), and `attend` receives
    it as both.
    """

    shared_qk: ClassVar[bool] = False

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
        keep: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """Project, attend head by head, merge the heads, project back; see `Attention.forward`."""
        if not self.traits.cross:
            self.require_self(x, context)
        q = self._split(self.query(x))
        if self.shared_qk:
            k, v = q, self._split(self.context(context))
        else:
            k, v = (self._split(part) for part in self.context(context).chunk(2, dim=-1))
        heads = self.attend(q, k, v, keep)
        return Attended(self.out(heads.transpose(1, 2).flatten(-2)))

    @abstractmethod
    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h m e"],
        v: Float[Tensor, "b h m e"],
        keep: Bool[Tensor, "b m"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """Mix values for every query; q, k come unscaled, `keep` is as in `Attention.forward`."""

    def _split(self, tokens: Float[Tensor, "b n d"]) -> Float[Tensor, "b h n e"]:
        return tokens.unflatten(-1, (self.size.heads, self.size.head_dim)).transpose(1, 2)
