"""A layer that returns its tokens alone, for `nn.Sequential` and saved graphs."""

import warnings

from jaxtyping import Bool
from torch import Tensor, nn

from zoo.contract import Attention, Tokens


class TokensOnly(nn.Module):
    """The tokens of a layer, or of an encoder layer, without its auxiliary losses.

    A layer that has such losses is wrapped for evaluation; training needs them.
    """

    def __init__(self, layer: nn.Module) -> None:
        """Wrap `layer`; warn if it is in training mode, and returns losses there."""
        super().__init__()
        attention = (module for module in layer.modules() if isinstance(module, Attention))
        losses = sorted({name for module in attention for name in module.traits.losses})
        if losses and layer.training:
            warnings.warn(
                f"TokensOnly drops the auxiliary losses {', '.join(losses)}, which training needs; "
                "call the layer itself, or wrap it in evaluation mode",
                stacklevel=2,
            )
        self.layer = layer

    def forward(self, x: Tokens, mask: Bool[Tensor, "b n"] | None = None) -> Tokens:
        """The tokens of self-attention; see `Attention.forward`."""
        return self.layer(x, mask=mask).tokens
