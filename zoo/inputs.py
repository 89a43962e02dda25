"""The checks of what a layer is called with: shapes and types of tokens and mask."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.registry import UserError
from zoo.size import Size


def require_inputs(size: Size, x: Any, context: Any, mask: Any) -> None:
    """Check the arguments of a layer of that size.

    Raises:
        UserError: `x` or `context` is not a floating-point tensor (batch, tokens, dim) of up to
            `max_len` tokens, they differ in batch, or `mask` is not a boolean tensor with one entry
            per context token.
    """
    if isinstance(context, Tensor) and context.dtype == torch.bool:
        raise UserError(
            "context is boolean; it holds tokens: give a mask by its name, layer(x, mask=mask)"
        )
    _require_tokens("x", x, size)
    if context is not x:
        _require_tokens("context", context, size)
        if context.shape[0] != x.shape[0]:
            raise UserError(
                f"x has {x.shape[0]} samples and context {context.shape[0]}; give a context per "
                "sample"
            )
    if mask is None:
        return
    if not isinstance(mask, Tensor):
        raise UserError(f"mask is a {type(mask).__name__}; give a boolean tensor")
    if mask.dtype != torch.bool:
        raise UserError(
            f"mask has dtype {mask.dtype}; a mask is boolean, True for tokens to attend to; "
            "convert it, for example with mask.bool()"
        )
    if mask.shape != context.shape[:2]:
        raise UserError(
            f"mask has shape {tuple(mask.shape)}; give one entry per context token, of shape "
            f"{tuple(context.shape[:2])}"
        )


def require_dtype(layer: nn.Module, x: Tensor) -> None:
    """Raise `UserError` if the layer has parameters of other dtypes than `x`, without autocast."""
    first = next(layer.parameters(), None)
    if first is None or x.dtype == first.dtype or torch.is_autocast_enabled(x.device.type):
        return
    dtypes = {part.dtype for part in layer.parameters() if part.is_floating_point()}
    if not dtypes or x.dtype in dtypes:
        return
    of_tokens, of_layer = (
        str(dtype).removeprefix("torch.") for dtype in (x.dtype, max(dtypes, key=str))
    )
    raise UserError(
        f"the tokens are {of_tokens} and the layer is {of_layer}; give tokens of the dtype of the "
        f"layer, x.to(torch.{of_layer}), or convert the layer, layer.to(torch.{of_tokens})"
    )


def _require_tokens(name: str, tokens: Any, size: Size) -> None:
    if not isinstance(tokens, Tensor):
        raise UserError(f"{name} is a {type(tokens).__name__}; give a tensor of tokens")
    shaped = tokens.ndim == 3 and tokens.shape[-1] == size.dim and tokens.shape[1] > 0
    if not (shaped and tokens.is_floating_point()):
        raise UserError(
            f"{name} has shape {tuple(tokens.shape)} and dtype {tokens.dtype}; give floating-point "
            f"tokens of shape (batch, tokens, {size.dim}), at least one token"
        )
    if tokens.shape[1] > size.max_len:
        raise UserError(
            f"{name} has {tokens.shape[1]} tokens, more than max_len={size.max_len}; truncate it, "
            "or build the layer with a larger max_len"
        )
