"""Nyströmformer as nystrom-attention computes it; `nystrom` is the same mechanism, mended.

Xiong et al., 2021, arXiv 2102.03902, by `nystrom_attention.NystromAttention` without its
projections. Landmarks are means over segments of positions, padded ones included, and the start of
the pseudo-inverse is scaled by one maximum over the whole batch and all heads.

Time O(n L e + L^3 iterations), memory O(n L) per head, with L landmarks.

Padding goes to the package as its mask. It fills up lengths that L does not divide with zeros in
front, which count as tokens unless there is a mask: such lengths get one that keeps every token.
"""

from types import MappingProxyType

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Size, Traits
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.registry import UserError, require_at_least
from zoo.variants import variants


@variants.register("nystrom-lib")
class NystromLib(ProjectedAttention):
    """`nystrom_attention.NystromAttention` between projections."""

    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    expected_failures = MappingProxyType(
        {
            "precisions": "its identity matrix is fp32 in any module: bf16 modules raise",
            "truncation equivalence": "segments count padded positions: outputs are off by 0.099",
            "batch independence": "the pseudo-inverse is scaled by a maximum over the batch: "
            "outputs move by 0.062",
        }
    )

    def __init__(
        self, size: Size, *, landmarks: int = 64, iterations: int = 6, conv: int = 0
    ) -> None:
        """Build the package's layer.

        Args:
            size: what every variant is built from.
            landmarks: L.
            iterations: steps towards the pseudo-inverse.
            conv: taps, an odd number, of the depth-wise convolution of the values; 0 for none.

        Raises:
            UserError: `landmarks` below 1, `iterations` below 0, or `conv` neither 0 nor odd.
            Unsupported: nystrom-attention cannot be imported.
        """
        super().__init__(size)
        require_at_least(1, "nystrom-lib", landmarks=landmarks)
        require_at_least(0, "nystrom-lib", iterations=iterations)
        if conv < 0 or (conv and conv % 2 == 0):
            raise UserError(f"nystrom-lib.conv={conv} must be an odd number of taps, or 0 for none")
        self.landmarks = landmarks
        self.inner = load("nystrom-lib", "nystrom_attention", "nystrom-attention").NystromAttention(
            dim=size.dim,
            dim_head=size.head_dim,
            heads=size.heads,
            num_landmarks=landmarks,
            pinv_iterations=iterations,
            residual=conv > 0,
            residual_conv_kernel=conv,
        )
        self.inner.to_qkv = self.inner.to_out = nn.Identity()

    def attend(
        self,
        q: Float[Tensor, "b h n e"],
        k: Float[Tensor, "b h n e"],
        v: Float[Tensor, "b h n e"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b h n e"]:
        """See `ProjectedAttention.attend`."""
        batch, heads, n, width = q.shape
        if mask is None and n % self.landmarks:
            mask = torch.ones(batch, n, dtype=torch.bool, device=q.device)
        merged = torch.cat([part.transpose(1, 2).flatten(2) for part in (q, k, v)], dim=-1)
        return self.inner(merged, mask=mask).unflatten(-1, (heads, width)).transpose(1, 2)
