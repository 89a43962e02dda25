"""A pre-norm transformer encoder layer around any attention variant.

Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020, arXiv 2002.04745:

    x = x + dropout(attention(norm(x)))
    x = x + dropout(W_2 dropout(gelu(W_1 norm(x) + b_1)) + b_2)

Dropout and activation are as in the published LRA runs of Primal-Attention (Chen et al., 2023), and
in `nn.TransformerEncoderLayer(norm_first=True, activation="gelu")`.
"""

import warnings
from typing import Any

from torch import Tensor, nn

from zoo.contract import Attended, Attention, Mask, State, Token, Tokens
from zoo.kernels.real_tokens import zero_padding
from zoo.library import Variant, create, with_hints
from zoo.packed import Segments
from zoo.recompute import RECOMPUTE, recomputed
from zoo.registry import UserError, allocating, checked, unknown
from zoo.size import (
    require_counts,
    require_dtype,
    require_inputs,
    require_probability,
    require_token,
)


class EncoderLayer(nn.Module):
    """Attention and a feed-forward block, each with a layer norm before and a residual around it.

    `EncoderLayer(zoo.create("primal", dim=64, heads=2, max_len=4096), feed_forward=128)` and
    `EncoderLayer.create("primal", dim=64, heads=2, max_len=4096, feed_forward=128)` are the same.
    """

    def __init__(
        self,
        attention: Attention,
        *,
        feed_forward: int,
        dropout: float = 0.0,
        recompute: str = "none",
    ) -> None:
        """Add norms and the feed-forward block to `attention`.

        Args:
            attention: the attention layer; its `size.dim` is the width of this layer.
            feed_forward: width of the hidden layer of the feed-forward block.
            dropout: probability after the attention, after the activation and after the second
                linear layer. Dropout of attention weights belongs to `attention`.
            recompute: what training computes again in the backward pass instead of storing its
                intermediate results: `none`, `attention` with its norm, or the whole `layer`.
                Outputs and gradients are the same; it costs time and saves memory.
        """
        super().__init__()
        if not isinstance(attention, Attention):
            raise UserError(f"EncoderLayer got {attention!r}, not an attention layer; give "
                            "zoo.create(NAME, dim=..., heads=..., max_len=...), or use "
                            "EncoderLayer.create")  # fmt: skip
        require_counts(feed_forward=feed_forward)
        require_probability("dropout", dropout)
        if recompute not in RECOMPUTE:
            raise UserError(unknown("recompute", str(recompute), RECOMPUTE))
        self.recompute = recompute
        dim = attention.size.dim
        self.attention = attention
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.dropout = nn.Dropout(dropout)
        self.feed_forward = nn.Sequential(
            nn.Linear(dim, feed_forward),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(feed_forward, dim),
            nn.Dropout(dropout),
        )

    @classmethod
    @with_hints
    @checked
    def create(
        cls,
        variant: Variant,
        *,
        feed_forward: int,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        recompute: str = "none",
        **options: Any,
    ) -> "EncoderLayer":
        """Build the layer by the name of its attention; see `__init__`.

        `options` are the other arguments of `zoo.create`: sizes, and options of the variant.
        """
        attention = create(variant, dropout=attention_dropout, **options)
        with allocating(f"feed_forward={feed_forward}", "lower it"):
            return cls(attention, feed_forward=feed_forward, dropout=dropout, recompute=recompute)

    def forward(self, x: Tokens, mask: Mask = None, segments: Segments | None = None) -> Attended:
        """Return new tokens, and the auxiliary losses of the attention.

        Args:
            x: tokens, (b, n, d).
            mask: True for real tokens, False for padding, which is not read; None if nothing is
                padded.
            segments: the sequence of each token in packed rows; see `zoo.packed`.
        """
        require_inputs(self.attention.size, x, x, mask, segments)
        require_dtype(self, x)
        x = zero_padding(x, mask)
        if self.recompute == "layer" and self.training:
            return recomputed(self._encode, x, mask, segments)
        return self._encode(x, mask, segments)

    def _encode(self, x: Tokens, *rows: Tensor | None) -> Attended:
        tokens, losses = self._attended(x, *rows)
        x = x + self.dropout(tokens)
        return Attended(x + self.feed_forward(self.feed_forward_norm(x)), losses)

    def _attended(self, x: Tokens, *rows: Tensor | None) -> Attended:
        inner = self.recompute == "attention" and self.training
        return recomputed(self._attend, x, *rows) if inner else self._attend(x, *rows)

    def _attend(self, x: Tokens, *rows: Tensor | None) -> Attended:
        return self.attention(self._attention_input(x), None, *rows)

    def _attention_input(self, x: Tokens | Token) -> Any:
        return self.attention_norm(x)

    def start(self, batch: int) -> State:
        """The state before the first token; see `Attention.start`."""
        return self.attention.start(batch)

    def step(self, x: Token, state: State) -> tuple[Token, State]:
        """The output at the next token and the new state, without dropout; see `Attention.step`."""
        require_token(self.attention.size.dim, x)
        require_dtype(self, x)
        tokens, state = self.attention.step(self._attention_input(x), state)
        return self._without_dropout(x + tokens), state

    def prefill(
        self, x: Tokens, mask: Mask = None, state: State | None = None,
        segments: Segments | None = None,
    ) -> tuple[Tokens, State]:  # fmt: skip
        """The outputs at the tokens of a prompt and the state after them, without dropout.

        See `Attention.prefill`.
        """
        require_inputs(self.attention.size, x, x, mask, segments)
        require_dtype(self, x)
        x = zero_padding(x, mask)
        tokens, state = self.attention.prefill(self._attention_input(x), mask, state, segments)
        return self._without_dropout(x + tokens), state

    def _without_dropout(self, x: Tokens | Token) -> Any:
        expand, activation, _, contract, _ = self.feed_forward
        return x + contract(activation(expand(self.feed_forward_norm(x))))


class TokensOnly(nn.Module):
    """The tokens of a layer, or of an encoder layer, without its auxiliary losses.

    A layer that has such losses is wrapped for evaluation; training needs them.
    """

    @checked
    def __init__(self, layer: nn.Module) -> None:
        """Wrap `layer`; warn if it is in training mode, and returns losses there."""
        super().__init__()
        attention = [module for module in layer.modules() if isinstance(module, Attention)]
        if not attention:
            raise UserError(f"zoo.TokensOnly got a {type(layer).__name__} without attention; give "
                            "a layer of zoo.create or an encoder layer")  # fmt: skip
        losses = sorted({name for module in attention for name in module.traits.losses})
        if losses and layer.training:
            warnings.warn(
                f"TokensOnly drops the auxiliary losses {', '.join(losses)}, which training needs; "
                "call the layer itself, or wrap it in evaluation mode",
                stacklevel=2,
            )
        self.layer = layer

    def forward(self, x: Tokens, mask: Mask = None, segments: Segments | None = None) -> Tokens:
        """The tokens of self-attention; see `Attention.forward`."""
        packed = {} if segments is None else {"segments": segments}
        return self.layer(x, mask=mask, **packed).tokens
