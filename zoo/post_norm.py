"""A post-norm transformer encoder layer: the norms follow the residual sums.

Vaswani et al., "Attention is all you need", 2017, arXiv 1706.03762:

    x = norm(x + dropout(attention(x)))
    x = norm(x + dropout(W_2 dropout(gelu(W_1 x + b_1)) + b_2))

The norm is a layer norm, or a batch norm as in the transformer of Zerveas et al., "A
transformer-based framework for multivariate time series representation learning", 2021, arXiv
2010.02803.
"""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from zoo.contract import Attended, Attention, Token, Tokens
from zoo.encoder import EncoderLayer
from zoo.registry import UserError


class PostNormLayer(EncoderLayer):
    def __init__(
        self,
        attention: Attention,
        *,
        feed_forward: int,
        dropout: float = 0.0,
        recompute: str = "none",
        norm: Literal["layer", "batch"] = "layer",
    ) -> None:
        super().__init__(attention, feed_forward=feed_forward, dropout=dropout, recompute=recompute)
        if norm == "batch" and recompute == "layer":
            raise UserError("recompute='layer' is not possible with a batch norm; use 'attention'")
        if norm == "batch":
            dim = attention.size.dim
            self.attention_norm, self.feed_forward_norm = MaskedBatchNorm(dim), MaskedBatchNorm(dim)

    def _encode(self, x: Tokens, *rows: Tensor | None) -> Attended:
        # A layer norm needs no mask: a token is normalised by itself.
        masks = rows[:1] if isinstance(self.attention_norm, MaskedBatchNorm) else ()
        tokens, losses = self._attended(x, *rows)
        x = self.attention_norm(x + self.dropout(tokens), *masks)
        return Attended(self.feed_forward_norm(x + self.feed_forward(x), *masks), losses)

    def _attention_input(self, x: Tokens | Token) -> Any:
        return x

    def _without_dropout(self, x: Tokens | Token) -> Any:
        x = self.attention_norm(x)
        expand, activation, _, contract, _ = self.feed_forward
        return self.feed_forward_norm(x + contract(activation(expand(x))))


class MaskedBatchNorm(nn.Module):
    """Batch norm over the real tokens of a batch (Ioffe and Szegedy, 2015, arXiv 1502.03167).

        y = (x - mean) / sqrt(variance + eps) * weight + bias

    In training, mean and variance are over all real tokens of the batch, per feature, in fp32,
    and their running averages are updated; in evaluation they are the running averages. Without a
    mask this is `nn.BatchNorm1d`.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int, eps: float = 1e-5, momentum: float = 0.1) -> None:
        # `momentum` is the weight of a new batch in the averages.
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight, self.bias = nn.Parameter(torch.ones(dim)), nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(
        self, input: Float[Tensor, "*b d"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "*b d"]:
        mean, variance = self.running_mean, self.running_var
        if self.training:
            mean, variance = self._update(input.float(), mask)
        scale = (variance + self.eps).rsqrt() * self.weight
        return (input - mean) * scale + self.bias

    def _update(
        self, x: Float[Tensor, "b n d"], mask: Bool[Tensor, "b n"] | None
    ) -> tuple[Float[Tensor, " d"], Float[Tensor, " d"]]:
        real = torch.ones_like(x[..., :1], dtype=torch.bool) if mask is None else mask[..., None]
        count = real.sum().clamp_min(1)
        # A select, not a product: a NaN at a padded position must not reach the sum.
        mean = x.where(real, 0.0).sum((0, 1)) / count
        variance = (x - mean).square().where(real, 0.0).sum((0, 1)) / count
        with torch.no_grad():
            unbiased = variance * (count / (count - 1).clamp_min(1))
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        return mean, variance
