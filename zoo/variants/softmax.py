"""Softmax attention, the reference that every other variant is compared with.

Vaswani et al., "Attention Is All You Need", 2017, arXiv 1706.03762, equation 1:

    out = softmax(q k^T / sqrt(e)) v

Time O(n m e); memory O(n m) by the formula, O(n + m) in the fused kernels behind
`scaled_dot_product_attention`.

The kernels of xformers are a backend too, on CUDA; see `backend_for`.

With `gate`, gated attention of Qiu et al., "Gated Attention for Large Language Models:
Non-linearity, Sparsity, and Attention-Sink-Free", 2025, arXiv 2505.06708, position G1:

    out_i = sigmoid(W_g x_i) * (softmax(q_i k^T / sqrt(e)) v)

before the output projection, with a number for each channel or for each head. x_i is the token of
the query, the input of the layer.

Deviations: a query whose every key is padded returns zero, where the formula is undefined. Gated
attention in the code of its authors has a norm of queries and keys, and no bias.
"""

from functools import cache
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Identity, Keys, Mask, Queries, Size, Tokens, Traits, Unsupported
from zoo.kernels.precision import product_dtype
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.recurrent import in_heads
from zoo.registry import in_one_line
from zoo.variants import variants

AllowedKeys = Bool[Tensor, "#b 1 #n m"]  # Which keys each query attends to, for all heads

# The `gpu_kernels` of what `scaled_dot_product_attention` computes.
FUSED = MappingProxyType(dict.fromkeys((False, True), "PyTorch (sdpa)"))


def _half_open(layer: "Softmax", other: Any) -> None:
    if layer.gate is not None:
        layer.gate.weight.zero_()
    layer.out.weight.mul_(2)


@variants.register("softmax")
class Softmax(ProjectedAttention):
    """`softmax(q k^T / sqrt(e)) v` by PyTorch's fused kernels, or by the formula.

    Args:
        backend: `sdpa` for `scaled_dot_product_attention`, `naive` for the formula (the
            definition of all others), `xformers` for its `memory_efficient_attention`,
            `auto` for xformers where a trial of it succeeds, and `sdpa` elsewhere. The harness
            replaces `auto` by the fastest of them for the shape of a run before it builds a
            model: nothing is timed in a layer.
        gate: the numbers that the output of a head is multiplied by: none, one, or one for
            each channel.
    """

    version = "1.0"
    traits = Traits(causal=True, cross=True, linear=False, stochastic=False, recurrent=False)
    family = "softmax"
    drops_weights = True
    gpu_kernels = FUSED
    caches = True
    sink_is_a_key = True
    identities = (
        Identity(other="softmax", where="gate 1/2, W_o doubled", options={"gate": "channel"},
                 prepare=_half_open),
    )  # fmt: skip

    def __init__(
        self, size: Size, *, backend: Literal["auto", "sdpa", "naive", "xformers"] = "auto",
        gate: Literal["none", "head", "channel"] = "none",
    ) -> None:  # fmt: skip
        super().__init__(size)
        self.backend = backend
        width = {"none": 0, "head": size.heads, "channel": size.dim}[gate]
        self.gate = nn.Linear(size.dim, width, bias=False) if width else None
        if backend == "xformers":
            load("softmax.backend=xformers", "xformers.ops", "xformers")
            if not torch.cuda.is_available():
                raise Unsupported("softmax.backend=xformers needs a CUDA device, and there is "
                                  "none; give backend=auto")  # fmt: skip

    def attend(self, q: Queries, k: Keys, v: Keys, mask: Mask) -> Queries:
        backend = BACKENDS[self._backend_for(q.device, q.dtype)]
        return backend(q, k, v, mask, self.size.causal, self.dropout)

    def _merge(self, x: Tokens, heads: Queries) -> Tokens:
        if self.gate is not None:
            heads = gated(heads, in_heads(self.gate(x), self.size.heads))
        return super()._merge(x, heads)

    def head_flops(self, n: int) -> int:
        # The gate is a projection, too.
        gates = 0 if self.gate is None else self.gate.out_features // self.size.heads
        return 2 * n * self.size.dim * gates + pair_flops(self.size, n)

    def backend_for(self, x: Tokens) -> str:
        return self._backend_for(x.device, product_dtype(x))

    def _backend_for(self, device: torch.device, dtype: torch.dtype) -> str:
        # The compiler has a kernel for sdpa, and none for xformers.
        if self.backend not in ("auto", "xformers") or torch.compiler.is_compiling():
            return "sdpa" if self.backend == "auto" else self.backend
        reason = xformers_failure(device, dtype, self.size.head_dim)
        if reason and self.backend == "xformers":
            raise Unsupported(f"softmax.backend=xformers cannot run: {reason}; give backend=auto")
        return "sdpa" if reason else "xformers"


def pair_flops(size: Size, n: int) -> int:
    # Scores and sums of the pairs of tokens, of one head.
    return 2 * (n * (n + 1) // 2 if size.causal else n * n) * 2 * size.head_dim


def gated(heads: Queries, logits: Float[Tensor, "b h n #e"]) -> Queries:
    return logits.sigmoid() * heads


def allowed_keys(q: Queries, k: Keys, mask: Mask, causal: bool) -> AllowedKeys | None:
    allowed = None if mask is None else mask[:, None, None, :]
    if causal:
        past = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
        allowed = past[None, None] if allowed is None else allowed & past
    return allowed


def naive(q: Queries, k: Keys, v: Keys, mask: Mask, causal: bool, dropout: float) -> Queries:
    # Equation 1 as it is written, with an n x m matrix of weights in memory.
    # The queries are divided, which are fewer numbers than the scores.
    scores = (q / q.shape[-1] ** 0.5) @ k.mT
    allowed = allowed_keys(q, k, mask, causal)
    if allowed is None:
        weights = scores.softmax(-1)
    else:
        # A finite minimum, then zeros: a row without any allowed key becomes 0 and never NaN.
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~allowed, lowest).softmax(-1).masked_fill(~allowed, 0.0)
    return F.dropout(weights, dropout) @ v


def sdpa(q: Queries, k: Keys, v: Keys, mask: Mask, causal: bool, dropout: float) -> Queries:
    if mask is None:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    allowed = allowed_keys(q, k, mask, causal)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed, dropout_p=dropout)


def xformers(q: Queries, k: Keys, v: Keys, mask: Mask, causal: bool, dropout: float) -> Queries:
    ops = load("softmax.backend=xformers", "xformers.ops", "xformers")
    allowed = None if mask is None else allowed_keys(q, k, mask, causal)
    if allowed is not None:
        bias = additive_bias(allowed, q, k)
    else:
        bias = ops.LowerTriangularMask() if causal else None
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = ops.memory_efficient_attention(q, k, v, attn_bias=bias, p=dropout).transpose(1, 2)
    return out if allowed is None else out.masked_fill(~allowed.any(-1, keepdim=True), 0.0)


def additive_bias(allowed: AllowedKeys, q: Queries, k: Keys) -> Float[Tensor, "b h n m"]:
    # 0 where `allowed`, elsewhere so low that the weight is 0.
    (b, h, n, _), m = q.shape, k.shape[2]
    # Half the lowest number: a row of the lowest would overflow to NaN within the kernel.
    bias = q.new_zeros(allowed.shape).masked_fill(~allowed, torch.finfo(q.dtype).min / 2)
    # The kernel requires rows that start at multiples of 8 entries.
    return F.pad(bias, (0, -m % 8))[..., :m].expand(b, h, n, m)


@cache
def xformers_failure(device: torch.device, dtype: torch.dtype, width: int) -> str:
    if device.type != "cuda":
        return f"it needs a CUDA device, and the tokens are on {device}"
    try:
        with torch.inference_mode(False), torch.enable_grad():
            trial = torch.zeros(1, 1, 8, width, dtype=dtype, device=device, requires_grad=True)
            mask = torch.ones(1, 8, dtype=torch.bool, device=device)
            xformers(trial, trial, trial, mask, False, 0.0).sum().backward()
    except Exception as error:
        # No package, no kernel for this device or dtype, or a missing library.
        return in_one_line(error)
    return ""


BACKENDS = {"naive": naive, "sdpa": sdpa, "xformers": xformers}
