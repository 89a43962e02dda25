"""Layers of packages that are no variants, which `harness cost` measures as such."""

from torch import Tensor, nn

from zoo.contract import Attended, Attention, Size, Traits
from zoo.packages import load
from zoo.projected import ProjectedAttention

TRAITS = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)


class Between(ProjectedAttention):
    """A function `inner` of queries, keys and values, (b, h, n, e) each, between projections."""

    traits = TRAITS

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The output, (b, h, n, e); the mask is not used."""
        return self.inner(q, k, v)


class LocalAttention(Between):
    """`local_attention.LocalAttention` with a window of 64."""

    def __init__(self, size: Size) -> None:
        """Build projections around the package's layer."""
        super().__init__(size)
        layer = load("this benchmark", "local_attention", "local-attention").LocalAttention
        self.inner = layer(64, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False)


class LinearAttention(Between):
    """`linear_attention_transformer.linear_attn`."""

    def __init__(self, size: Size) -> None:
        """Build projections around the package's function."""
        super().__init__(size)
        name = "linear_attention_transformer"
        package = load("this benchmark", f"{name}.{name}", name.replace("_", "-"))
        self.inner = package.linear_attn


class Whole(Attention):
    """A layer `inner` from tokens, (b, n, d), to themselves."""

    traits = TRAITS

    def forward(
        self, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Attended:
        """New tokens, (b, n, d)."""
        return Attended(self.inner(x))


class Linformer(Whole):
    """`linformer.LinformerSelfAttention` of rank 256."""

    def __init__(self, size: Size) -> None:
        """Build the package's layer."""
        super().__init__(size)
        layer = load("this benchmark", "linformer", "linformer").LinformerSelfAttention
        self.inner = layer(size.dim, size.max_len, k=256, heads=size.heads)


class MultiheadAttention(Whole):
    """`torch.nn.MultiheadAttention`."""

    def __init__(self, size: Size) -> None:
        """Build PyTorch's layer."""
        super().__init__(size)
        self.layer = nn.MultiheadAttention(size.dim, size.heads, batch_first=True)
        self.inner = lambda x: self.layer(x, x, x, need_weights=False)[0]
