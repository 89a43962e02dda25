"""Variants in which one output depends on one token that it must not depend on."""

from collections.abc import Callable

import torch

from tests.zoo.faulty.correct import Bidirectional, Correct
from zoo.contract import Attended, Attention

EFFECTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "value and gradient": torch.tanh,
    "value": lambda x: x.sign(),
    "gradient": lambda x: x - x.detach(),
}

Applies = Callable[[Attention, torch.Tensor, torch.Tensor | None], bool]


def causal_leak(
    pairs: list[tuple[int, int]], effect: str, applies: Applies = lambda *_: True
) -> type[Attention]:
    """Of each pair (i, j), output i depends on token j, in the causal form."""

    class CausalLeak(Correct):
        def forward(self, x, context, mask):
            attended = super().forward(x, context, mask)
            if not (self.size.causal and applies(self, x, mask)):
                return attended
            tokens = attended.tokens
            for i, j in pairs:
                if j < x.shape[1]:
                    real = 1.0 if mask is None else mask[:, j : j + 1].to(x.dtype)
                    tokens = _add(tokens, i, 0.01 * real * EFFECTS[effect](x[:, j]))
            return Attended(tokens)

    CausalLeak.__name__ += f" {pairs} {effect}"
    return CausalLeak


def padding_leak(pairs: list[tuple[int, int]], effect: str) -> type[Attention]:
    """Of each pair (i, j), output i depends on token j if only the latter is padded."""

    class PaddingLeak(Bidirectional):
        def forward(self, x, context, mask):
            tokens = super().forward(x, context, mask).tokens
            for i, j in pairs:
                if mask is not None and max(i, j) < x.shape[1]:
                    real = (mask[:, i : i + 1] & ~mask[:, j : j + 1]).to(x.dtype)
                    tokens = _add(tokens, i, 0.01 * real * EFFECTS[effect](x[:, j]))
            return Attended(tokens)

    PaddingLeak.__name__ += f" {pairs} {effect}"
    return PaddingLeak


def batch_leak(to: tuple[int, int], source: tuple[int, int], effect: str) -> type[Attention]:
    """Output i of sample a depends on token j of sample b, for `to` (a, i) and `source` (b, j)."""

    class BatchLeak(Bidirectional):
        def forward(self, x, context, mask):
            tokens = super().forward(x, context, mask).tokens
            (a, i), (b, j) = to, source
            if max(a, b) < x.shape[0] and max(i, j) < x.shape[1]:
                leak = torch.zeros_like(tokens[:, 0])
                leak = leak.index_fill(0, torch.tensor(a), 1.0) * EFFECTS[effect](x[b, j])
                tokens = _add(tokens, i, 0.01 * leak)
            return Attended(tokens)

    BatchLeak.__name__ += f" {to} {source} {effect}"
    return BatchLeak


def loss_leak(token: int, effect: str) -> type[Attention]:
    """The loss depends on one token, although it is padded."""

    class LossLeak(Bidirectional):
        def forward(self, x, context, mask):
            tokens = super().forward(x, context, mask).tokens
            losses = {}
            if self.training and token < x.shape[1]:
                losses = {"size": EFFECTS[effect](x[:, token]).mean() + 0 * tokens.mean()}
            return Attended(tokens, losses)

    LossLeak.__name__ += f" {token} {effect}"
    return LossLeak


def _add(tokens: torch.Tensor, index: int, change: torch.Tensor) -> torch.Tensor:
    """`change` (b, d) added to the token at `index`."""
    here = (torch.arange(tokens.shape[1]) == index)[:, None]
    return tokens + torch.where(here, change[:, None], 0.0).to(tokens.dtype)
