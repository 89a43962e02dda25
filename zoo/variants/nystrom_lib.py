"""Nyströmformer as nystrom-attention computes it; `nystrom` is corrected.

Xiong et al., 2021, arXiv 2102.03902, by `nystrom_attention.NystromAttention` without its
projections. Landmarks are means over segments of positions, padded ones included, and the first
iterate of the pseudo-inverse is scaled by one maximum over the whole batch and all heads.

Time O(n L e + L^3 iterations), memory O(n L) per head, with L landmarks.

Padding goes to the package as its mask. The package extends lengths that L does not divide by zeros
at the front, which count as tokens unless there is a mask: such lengths get one of all True.
"""

from types import MappingProxyType

import torch
from torch import nn

from zoo.contract import Count, Keys, Mask, Natural, Queries, Size, Traits
from zoo.kernels.depthwise import Taps
from zoo.packages import library, load
from zoo.projected import ProjectedAttention
from zoo.variants import variants


@variants.register("nystrom-lib")
class NystromLib(ProjectedAttention):
    """`nystrom_attention.NystromAttention` between projections.

    Args:
        landmarks: L.
        iterations: steps towards the pseudo-inverse.
        conv: taps, an odd number, of the depth-wise convolution of the values; 0 for none.
    """

    version = "1.0"
    traits = Traits(causal=False, cross=False, linear=True, stochastic=False, recurrent=False)
    family = "low rank"
    requires = ("nystrom-attention",)
    backend_for = library
    expected_failures = MappingProxyType(
        {
            "precisions": "the identity matrix is fp32 in any module: bf16 modules raise",
            "gradients, fp32 and bf16": "as precisions: bf16 modules raise",
            "large inputs, fp16": "as precisions: fp16 modules raise",
            "empty batch": "a maximum over the batch: no samples raise",
            "truncation equivalence": "segments include padded positions: the error is 0.099",
            "batch independence": "the pseudo-inverse is scaled by a maximum over the batch: "
            "the error is 0.062",
            "batch independence, large batches": "the pseudo-inverse is scaled by a maximum over "
            "the batch: the error is 0.44",
            "export": "the package pads by the remainder of n and L: other remainders raise",
        }
    )

    def __init__(
        self, size: Size, *, landmarks: Count = 64, iterations: Natural = 6, conv: Taps = 0
    ) -> None:
        super().__init__(size)
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

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        batch, heads, n, width = q.shape
        if mask is None and n % self.landmarks:
            mask = torch.ones(batch, n, dtype=torch.bool, device=q.device)
        merged = torch.cat([part.transpose(1, 2).flatten(2) for part in (q, k, v)], dim=-1)
        return self.inner(merged, mask=mask).unflatten(-1, (heads, width)).transpose(1, 2)
