"""The size that every variant is built for, and the checks of what a layer of it is called with."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from zoo.packed import filled
from zoo.registry import UserError

T = TypeVar("T")

FROM_START = "give the result of start, or of the last step"

# A matrix of this width has 4 TiB: the allocation of a larger layer may end the process.
LARGEST_DIM = 2**20


@dataclass(frozen=True, kw_only=True)
class Size:
    """The arguments that every variant is built from.

    Attributes:
        dim: model width d, a multiple of `heads`.
        heads: number of heads h.
        max_len: the largest number of tokens in an input; a longer one is rejected. The steps of a
            recurrent layer may continue beyond it.
        causal: whether output i may depend on tokens 0..i only.
        dropout: probability of dropping an attention weight, where the variant has such weights.
        rotary: whether queries and keys get rotary position embeddings (`zoo.kernels.rotary`); the
            input then has no other position embedding.
        short_conv: taps of the convolution behind the projections of queries, keys and values
            (`zoo.projection`); 0 for none.
    """

    dim: int
    heads: int
    max_len: int
    causal: bool
    dropout: float
    rotary: bool = False
    short_conv: int = 0

    def __post_init__(self) -> None:
        require_counts(dim=self.dim, heads=self.heads, max_len=self.max_len)
        if self.dim > LARGEST_DIM:
            raise UserError(f"dim={self.dim} is above {LARGEST_DIM:,}; give a smaller width")
        if self.dim % self.heads:
            raise UserError(
                f"dim={self.dim} is not a multiple of heads={self.heads}; change either"
            )
        require_probability("dropout", self.dropout)
        if self.short_conv != 0:
            require_counts(short_conv=self.short_conv)
        for name in ("causal", "rotary"):
            if not isinstance(value := getattr(self, name), bool):
                raise UserError(f"{name}={value!r} is not a bool; give True or False")

    @property
    def head_dim(self) -> int:
        """Width e of one head."""
        return self.dim // self.heads


def require_counts(least: int = 1, /, **values: object) -> None:
    for name, value in values.items():
        # A bool is an Integral, too.
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise UserError(f"{name}={value!r} is not an int; give a whole number")
        if value < least:
            raise UserError(f"{name}={value} must be at least {least}; raise it")
        if value >= 2**63:
            raise UserError(f"{name}={value} must be below 2**63; lower it")


def require_probability(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise UserError(f"{name}={value!r} is not a float; give a number in [0, 1)")
    if not 0.0 <= float(value) < 1.0:
        raise UserError(f"{name}={value} must be in [0, 1); give 0 for none")


def require_inputs(size: Size, x: Any, context: Any, mask: Any, segments: Any = None) -> None:
    if segments is not None:  # `max_len` limits a sequence
        size = replace(size, max_len=2**62)
    if isinstance(context, Tensor) and context.dtype == torch.bool:
        raise UserError(
            "context is boolean; it holds tokens: give a mask by its name, layer(x, mask=mask)"
        )
    _require_tokens("x", x, size)
    if context is not x:
        _require_tokens("context", context, size)
        if context.shape[0] != x.shape[0]:
            raise UserError(f"x has {x.shape[0]} samples and context {context.shape[0]}; give a "
                            "context per sample")  # fmt: skip
    if mask is not None:
        require_mask(mask, context)
    if segments is not None:
        require_segments(segments, x, mask)


def require_segments(segments: Any, x: Tensor, mask: Tensor | None) -> None:
    whole = isinstance(segments, Tensor) and segments.dtype in (torch.int32, torch.int64)
    if not whole or segments.shape != x.shape[:2] or segments.device != x.device:
        got = getattr(segments, "shape", ()), getattr(segments, "dtype", type(segments).__name__)
        raise UserError(f"segments has shape {tuple(got[0])} and dtype {got[1]}; give a whole "
                        f"number for each token, of shape {tuple(x.shape[:2])} on {x.device}, as "
                        "zoo.packed.segments_of does")  # fmt: skip
    falls = filled(segments, mask) != segments
    if bool((falls if mask is None else falls & mask).any()):
        raise UserError("segments decreases within a row; give each sequence a larger number than "
                        "the one before it, and masked tokens any")  # fmt: skip


def require_mask(mask: Any, context: Tensor) -> None:
    if not isinstance(mask, Tensor):
        raise UserError(f"mask is a {type(mask).__name__}; give a boolean tensor")
    if mask.dtype != torch.bool:
        raise UserError(f"mask has dtype {mask.dtype}; a mask is boolean, True for tokens to "
                        "attend to; convert it, for example with mask.bool()")  # fmt: skip
    if mask.device != context.device:
        raise UserError(
            f"mask is on {mask.device} and the tokens are on {context.device}; give one device"
        )
    if mask.shape != context.shape[:2]:
        raise UserError(f"mask has shape {tuple(mask.shape)}; give one entry per context token, of "
                        f"shape {tuple(context.shape[:2])}")  # fmt: skip


def checked_step(step: Callable[..., T]) -> Callable[..., T]:
    @wraps(step)
    def checked(self: Any, x: Any, state: Any) -> T:
        require_token(self.size.dim, x)
        require_dtype(self, x)
        parts = require_state(len(x), state)
        try:
            return step(self, x, parts)
        except (IndexError, TypeError, ValueError):
            require_parts(self, parts)
            raise

    return checked


def require_state(samples: int, state: Any) -> tuple[Tensor, ...]:
    # A list as well: of states whose samples were selected.
    parts = tuple(state) if isinstance(state, list | tuple) else (None,)
    if not all(isinstance(part, Tensor) and part.shape[:1] == (samples,) for part in parts):
        raise UserError(f"the state is not one of {samples} samples; {FROM_START}")
    return cast(tuple[Tensor, ...], parts)


def require_parts(layer: Any, state: tuple[Tensor, ...]) -> None:
    if len(state) != (count := len(layer.start(0))):
        raise UserError(f"the state has {len(state)} tensors and not {count}; {FROM_START}")


def require_token(dim: int, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise UserError(f"x is a {type(x).__name__}; give a tensor of one token a sample")
    if x.ndim != 2 or x.shape[1] != dim or not x.is_floating_point():
        raise UserError(f"x has shape {tuple(x.shape)} and dtype {x.dtype}; give one "
                        f"floating-point token a sample, of shape (batch, {dim})")  # fmt: skip


def require_dtype(layer: nn.Module, x: Tensor) -> None:
    first = next(layer.parameters(), None)
    if x.device.type == "meta":
        raise UserError("the tokens are on meta, which has no numbers; give them on another device")
    if first is None or x.dtype == first.dtype or torch.is_autocast_enabled(x.device.type):
        return
    dtypes = {part.dtype for part in layer.parameters() if part.is_floating_point()}
    if not dtypes or x.dtype in dtypes:
        return
    of_tokens, of_layer = (
        str(dtype).removeprefix("torch.") for dtype in (x.dtype, max(dtypes, key=str))
    )
    raise UserError(f"the tokens are {of_tokens} and the layer is {of_layer}; give tokens of the "
                    f"dtype of the layer, x.to(torch.{of_layer}), or convert the layer, "
                    f"layer.to(torch.{of_tokens})")  # fmt: skip


def _require_tokens(name: str, tokens: Any, size: Size) -> None:
    if not isinstance(tokens, Tensor):
        raise UserError(f"{name} is a {type(tokens).__name__}; give a tensor of tokens")
    shaped = tokens.ndim == 3 and tokens.shape[-1] == size.dim and tokens.shape[1] > 0
    if not (shaped and tokens.is_floating_point()):
        raise UserError(f"{name} has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; give "
                        f"floating-point tokens of shape (batch, tokens, {size.dim}), at least one "
                        "token")  # fmt: skip
    if tokens.shape[1] > size.max_len:
        raise UserError(f"{name} has {tokens.shape[1]} tokens, more than max_len={size.max_len}; "
                        "truncate it, or build the layer with a larger max_len")  # fmt: skip
