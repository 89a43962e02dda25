"""Native variants compared with library packages: B=2 N=4096 D=64 H=2, fp32, both passes.

With these options both compute the same amount. A package without projections is wrapped in those
of the native variant.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting, same, unmeasurable
from zoo.contract import Size, Traits, Unsupported
from zoo.cost import peak_bytes
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.variants import variants

BATCH, LENGTH = 2, 4096
SIZE = Size(dim=64, heads=2, max_len=LENGTH, causal=False, dropout=0.0)

Layer = Callable[[Tensor], Tensor]


class WithProjections(ProjectedAttention):
    """A function of queries, keys and values, with projections around it."""

    traits = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)

    def __init__(self, inner: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Wrap `inner`, whose inputs and output are (b, h, n, e)."""
        super().__init__(SIZE)
        self.inner = inner

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `ProjectedAttention.attend`; nothing is padded."""
        return self.inner(q, k, v)


class Pair(NamedTuple):
    """A native variant, its options, and the package's counterpart."""

    native: str
    options: dict[str, Any]
    twin: str
    build: Callable[[], nn.Module]


def registered(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: variants.find(name)(SIZE, **options)


def published(module: str, package: str) -> Any:
    return load("this benchmark", module, package)


def linear() -> nn.Module:
    package = published("linear_attention_transformer", "linear-attention-transformer")
    return WithProjections(package.linear_attention_transformer.linear_attn)


def local() -> nn.Module:
    package = published("local_attention", "local-attention")
    return WithProjections(
        package.LocalAttention(64, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False)
    )


def linformer() -> nn.Module:
    package = published("linformer", "linformer")
    return package.LinformerSelfAttention(SIZE.dim, LENGTH, k=256, heads=SIZE.heads)


def multihead() -> nn.Module:
    return nn.MultiheadAttention(SIZE.dim, SIZE.heads, batch_first=True)


PAIRS = [
    Pair(
        "performer", {"features": 256}, "performer-lib", registered("performer-lib", features=256)
    ),
    Pair("nystrom", {"landmarks": 64}, "nystrom-lib", registered("nystrom-lib", landmarks=64)),
    Pair(
        "reformer",
        {"bucket": 64, "hashes": 2},
        "reformer-lib",
        registered("reformer-lib", bucket=64, hashes=2),
    ),
    Pair("linear", {}, "linear_attention_transformer.linear_attn", linear),
    Pair("local", {"window": 64}, "local_attention.LocalAttention", local),
    Pair("linformer", {"rank": 256}, "linformer.LinformerSelfAttention", linformer),
    Pair("softmax", {"backend": "sdpa"}, "torch.nn.MultiheadAttention", multihead),
]


def tokens_of(layer: nn.Module, x: Tensor) -> Tensor:
    """The output tokens, for each of the signatures."""
    if isinstance(layer, nn.MultiheadAttention):
        return layer(x, x, x, need_weights=False)[0]
    return layer(x, x, None).tokens if hasattr(layer, "traits") else layer(x)


def forward_and_backward(layer: nn.Module, x: Tensor) -> Callable[[], None]:
    def call() -> None:
        tokens_of(layer, x).square().mean().backward()
        layer.zero_grad()
        x.grad = None

    return call


CLAIMS = [
    *(
        Claim(
            name=f"twin-time-{pair.native}",
            what=f"Time of a layer of {pair.native}, forward and backward, over that of "
            f"{pair.twin}",
            bounds={"cpu": 1.3, "cuda": None},
            limit="None: packages differ in what they keep, copy and compute twice.",
        )
        for pair in PAIRS
    ),
    *(
        Claim(
            name=f"twin-memory-{pair.native}",
            what=f"Peak memory of a layer of {pair.native}, forward and backward, over that of "
            f"{pair.twin}",
            bounds={"cpu": None, "cuda": None},
            limit="None: packages differ in what they keep, copy and compute twice.",
        )
        for pair in PAIRS
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`; a pair whose package is not installed has findings without ratios."""
    for pair in PAIRS:
        try:
            yield from compared(pair, setting)
        except Unsupported as error:
            names = f"twin-time-{pair.native}", f"twin-memory-{pair.native}"
            yield from unmeasurable(names, pair.twin, str(error))


def compared(pair: Pair, setting: Setting) -> Iterator[Finding]:
    """The findings of one pair.

    Raises:
        Unsupported: the package is not installed.
    """
    torch.manual_seed(0)
    length = setting.size(LENGTH, 256)
    x = torch.randn(BATCH, length, SIZE.dim, device=setting.device, requires_grad=True)
    native = variants.find(pair.native)(SIZE, **pair.options)
    layers = {pair.native: native, pair.twin: pair.build()}
    calls = {
        name: forward_and_backward(layer.to(setting.device), x) for name, layer in layers.items()
    }
    options = "".join(f", {name}={value}" for name, value in pair.options.items())
    how = f"B={BATCH} N={length} D={SIZE.dim} H={SIZE.heads}, fp32{options}"
    times = AlternatingTimes(calls, setting, rounds=15)
    yield times.finding(f"twin-time-{pair.native}", pair.native, pair.twin, how)
    peaks = {name: peak_bytes(call, setting.device) for name, call in calls.items()}
    figures = {f"{name} (MiB)": peak / 2**20 for name, peak in peaks.items()}
    ratio = peaks[pair.native] / peaks[pair.twin]
    yield same(f"twin-memory-{pair.native}", how, ratio, figures)
