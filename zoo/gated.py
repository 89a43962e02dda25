"""The frame of mechanisms whose heads are normed one by one, and gated by their own token.

    out = W_o (swish(W_g x) * Norm_h(y))

with y from an inner mechanism and Norm_h a group norm, one group a head. Positions are ranks among
the real tokens of a sample: these are moved to the front, and back.
"""

from abc import abstractmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Attended, Attention, State
from zoo.kernels.real_tokens import gather_tokens, real_first


class GatedAttention(Attention):
    """Owns norm, gate and output projection behind an inner `attend`, and the state's shape."""

    def _make_output(self) -> None:
        """Make gate, norm and output projection, behind whatever else a subclass makes.

        Last, since the order of making decides what a seed draws for each parameter.
        """
        size = self.size
        self.gate = nn.Linear(size.dim, size.dim)
        self.norm = nn.GroupNorm(size.heads, size.dim)
        self.out = nn.Linear(size.dim, size.dim)

    def forward(
        self,
        x: Float[Tensor, "b n d"],
        context: Float[Tensor, "b m d"],
        mask: Bool[Tensor, "b m"] | None,
    ) -> Attended:
        """Move real tokens to the front, attend, merge the heads; see `Attention.forward`."""
        self.require_self(x, context)
        if mask is None:
            return Attended(self._merge(x, self.attend(x, None)))
        order, place = real_first(mask)
        real = torch.arange(x.shape[1], device=x.device) < mask.sum(1, keepdim=True)
        front = gather_tokens(x, order)
        return Attended(gather_tokens(self._merge(front, self.attend(front, real)), place))

    @abstractmethod
    def attend(
        self, x: Float[Tensor, "b n d"], real: Bool[Tensor, "b n"] | None
    ) -> Float[Tensor, "b h n e"]:
        """What each head makes of tokens of which the real ones come first."""

    def start(self, batch: int) -> State:
        """See `Attention.start`: a matrix a head, (b, h, e, e), and how many tokens came."""
        heads, width = self.size.heads, self.size.head_dim
        return self.zero_state(batch, heads, width, width), self.zero_state(batch).long()

    def _merge(
        self, x: Float[Tensor, "b n d"], heads: Float[Tensor, "b h n e"]
    ) -> Float[Tensor, "b n d"]:
        """Norm head by head, gate, project back."""
        gate = self.gate(x)
        merged = heads.transpose(1, 2).flatten(-2).to(gate.dtype)
        normed = self.norm(merged.flatten(0, 1)).unflatten(0, x.shape[:2])
        return self.out(F.silu(gate) * normed)
