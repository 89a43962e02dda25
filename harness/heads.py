"""A classifier of all tokens at their positions."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.kernels.dropout import Dropout


class FlattenedHead(nn.Linear):
    """One linear layer on the concatenated tokens, GELU and dropout before it, padding as zeros.

    The head of the published models of time series (Zerveas et al., 2021, arXiv 2010.02803; Chen et
    al., 2023, arXiv 2305.19798).
    """

    def __init__(self, dim: int, max_len: int, classes: int, dropout: float) -> None:
        """Read `max_len` tokens of width `dim`."""
        super().__init__(dim * max_len, classes)
        self.dropout = Dropout(dropout)

    def forward(
        self, input: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b classes"]:
        """Return logits; n may be below `max_len`, as in a batch of short sequences."""
        tokens = self.dropout(F.gelu(input))
        if mask is not None:
            tokens = torch.where(mask[..., None], tokens, 0.0)
        flat = tokens.flatten(1)
        return super().forward(F.pad(flat, (0, self.in_features - flat.shape[1])))
