"""Attention layers, forward and backward: Primal-Attention, every variant, and library packages."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.claims import Finding, Setting, Times, section, unmeasurable, variants_of
from harness.cost.limits import measure_limits
from harness.cost.plan import CostRequest, cells
from harness.cost.work import prepare
from harness.records.cost import Pass
from harness.records.fields import Precision, Quartiles
from zoo.contract import Attention, Size, Traits, Unsupported
from zoo.cost import peak_bytes
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.primal import Primal

RANK = 30


def size_of(length: int) -> Size:
    return Size(dim=64, heads=2, max_len=length, causal=False, dropout=0.0)


def draw(batch: int, length: int, setting: Setting) -> Tensor:
    return torch.randn(batch, length, 64, device=setting.device, requires_grad=True)


def peaks_of(calls: Mapping[str, Callable[[], None]], setting: Setting) -> dict[str, int]:
    """Bytes that each call allocates at most."""
    return {name: peak_bytes(call, setting.device) for name, call in calls.items()}


def memory(name: str, how: str, peaks: Mapping[str, int], which: str, other: str) -> Finding:
    """The finding of the peak memory of a layer over that of another, equal in every round."""
    figures = {f"{one} (MiB)": Quartiles.of([peaks[one] / 2**20]) for one in (which, other)}
    return Finding(name, how, [peaks[which] / peaks[other]], figures)


def both_passes(layer: Attention, x: Tensor) -> Callable[[], None]:
    """A call that computes tokens, auxiliary losses, and the gradients of `x` and parameters."""
    # Given, so that nothing but the layer is measured.
    upstream = torch.randn_like(x)

    def call() -> None:
        tokens, losses = layer(x)
        outputs = [tokens, *losses.values()]
        torch.autograd.backward(outputs, [upstream, *(None for _ in losses)])
        layer.zero_grad()
        x.grad = None

    return call


@section("layer")
def measure_primal(setting: Setting) -> Iterator[Finding]:
    """The Primal-Attention layer, forward and backward: B=8 N=4096 D=64 H=2 s=30.

    Compared with its literal form, the published order of computation with all scores in memory,
    and with `none`, which projects tokens and does not mix them.
    """
    batch, size = setting.size(8, 2), size_of(setting.size(4096, 64))
    torch.manual_seed(0)
    primal, literal = Primal(size, rank=RANK), Primal(size, rank=RANK, backend="literal")
    literal.load_state_dict(primal.state_dict())
    layers = {"primal": primal, "literal": literal, "none": variants.find("none")(size)}
    x = draw(batch, size.max_len, setting)
    calls = {name: both_passes(layer.to(setting.device), x) for name, layer in layers.items()}
    shape = f"B={batch} N={size.max_len} D={size.dim} H={size.heads} s={RANK}, fp32"
    times = Times(calls, setting, rounds=31)
    yield times.finding("layer-time-literal", "primal", "literal", shape)
    yield times.finding("layer-time-none", "primal", "none", shape)
    peaks = peaks_of({name: calls[name] for name in ("primal", "literal")}, setting)
    yield memory("layer-memory-literal", shape, peaks, "primal", "literal")
    limits = measure_limits(setting.device, "fp32", budget=0.1 if setting.tiny else 1.0)
    parameters = sum(p.numel() for p in primal.parameters())
    least = 4 * (4 * x.numel() + 2 * parameters) / limits.bytes_per_second
    yield Finding(
        "layer-time-bytes",
        f"{shape}; a copy moves {limits.bytes_per_second / 1e9:.3g} GB/s",
        [seconds / least for seconds in times.seconds["primal"]],
        times.figures("primal"),
    )


VARIANTS = variants_of("memory", "memory-")
"""Bounds of their times are 1.1 times what was measured (AMD EPYC with AVX512, two threads) before
these variants computed again in the backward pass what they do not store, so that less memory does
not cost time; of gated-linear less."""


@section("memory")
def measure_memory(setting: Setting) -> Iterator[Finding]:
    """Every variant as a layer, forward and backward: 16,384 tokens at N=4096, D=64, fp32.

    SDPA computes its weights again in the backward pass, so its memory is linear in N.
    """
    batch, size = setting.size(4, 1), size_of(setting.size(4096, 64))
    shape = f"B={batch} N={size.max_len} D={size.dim} H={size.heads}, fp32, default options"
    x = draw(batch, size.max_len, setting)
    layers = {"softmax": variants.find("softmax")(size, backend="sdpa")}
    layers |= {name: variants.find(name)(size) for name in VARIANTS}
    calls = {name: both_passes(layer.to(setting.device), x) for name, layer in layers.items()}
    times, peaks = Times(calls, setting, rounds=5), peaks_of(calls, setting)
    for name in VARIANTS:
        yield memory(f"memory-{name}", shape, peaks, name, "softmax")
        yield times.finding(f"time-{name}", name, "softmax", shape)


DELTA_FAMILY = variants_of("recurrences", "decode-")


@section("recurrences")
def measure_recurrences(setting: Setting) -> Iterator[Finding]:
    """The delta family, causal: forward and backward of 16,384 tokens, and decoding of one token.

    A layer of D=64 and H=2 at N=4096, and at 16 times that length in one sample.
    """
    length, every = setting.size(4096, 64), (*DELTA_FAMILY, "gated-linear", "linear", "softmax")

    def calls(
        operation: Pass, precision: Precision, length: int, batching: str = "1"
    ) -> dict[str, Callable[[], Any]]:
        request = CostRequest(
            attentions=every[:-1], lengths=[length], operations=[operation], level="layer",
            batching=batching, dim=64, heads=2, causal=True, precision=precision,
            device=setting.kind, settings={},
        )  # fmt: skip
        # The last rows are softmax, first by SDPA and then by its formula.
        return {spec.attention: prepare(spec).call for spec in reversed(cells(request))}

    for precision in ("fp32", "bf16"):
        both = calls("train", precision, length, f"tokens={4 * length}")
        shape = f"B=4 N={length} D=64 H=2, causal, {precision}"
        times, peaks = Times(both, setting, rounds=9), peaks_of(both, setting)
        for name in DELTA_FAMILY:
            yield times.finding(f"softmax-{precision}-{name}", name, "softmax", shape)
            yield times.finding(f"gated-linear-{precision}-{name}", name, "gated-linear", shape)
            claim = f"softmax-memory-{precision}-{name}"
            yield memory(claim, shape, peaks, name, "softmax")
    decoding = Times(calls("decode", "fp32", length), setting, rounds=301)
    shape = f"B=1 N={length} D=64 H=2, fp32"
    for name in DELTA_FAMILY:
        yield decoding.finding(f"decode-{name}", name, "linear", shape)
    for name in DELTA_FAMILY:
        long, short = (calls("train", "fp32", n)[name] for n in (16 * length, length))
        times = Times({"long": long, "short": short}, setting, rounds=5)
        pairs = zip(times.seconds["long"], times.seconds["short"], strict=True)
        yield Finding(
            f"length-{name}", f"B=1 N={16 * length} and {length}, D=64 H=2, causal, fp32",
            [a / b / 16 for a, b in pairs], times.figures("long", "short"),
        )  # fmt: skip


BATCH, LENGTH = 2, 4096
SIZE = size_of(LENGTH)


class WithProjections(ProjectedAttention):
    """A function of queries, keys and values, (b, h, n, e) each, with projections around it."""

    traits = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)

    def __init__(self, inner: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Wrap `inner`."""
        super().__init__(SIZE)
        self.inner = inner

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """See `ProjectedAttention.attend`; nothing is padded."""
        return self.inner(q, k, v)


def linear() -> nn.Module:
    name = "linear_attention_transformer"
    package = load("this benchmark", name, name.replace("_", "-"))
    return WithProjections(package.linear_attention_transformer.linear_attn)


def local() -> nn.Module:
    package: Any = load("this benchmark", "local_attention", "local-attention")
    return WithProjections(
        package.LocalAttention(64, exact_windowsize=True, autopad=True, use_rotary_pos_emb=False)
    )


def linformer() -> nn.Module:
    package: Any = load("this benchmark", "linformer", "linformer")
    return package.LinformerSelfAttention(SIZE.dim, LENGTH, k=256, heads=SIZE.heads)


def multihead() -> nn.Module:
    return nn.MultiheadAttention(SIZE.dim, SIZE.heads, batch_first=True)


class Pair(NamedTuple):
    """A native variant, its options, and the package's counterpart: a variant unless built here."""

    native: str
    options: dict[str, Any]
    twin: str
    build: Callable[[], nn.Module] | None = None


PAIRS = [
    Pair("performer", {"features": 256}, "performer-lib"),
    Pair("nystrom", {"landmarks": 64}, "nystrom-lib"),
    Pair("reformer", {"bucket": 64, "hashes": 2}, "reformer-lib"),
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


@section("library_twins")
def measure_twins(setting: Setting) -> Iterator[Finding]:
    """Native variants compared with library packages: B=2 N=4096 D=64 H=2, fp32, both passes.

    With these options both compute the same amount. A package without projections is wrapped in
    those of the native variant.
    """
    for pair in PAIRS:
        try:
            yield from compare(pair, setting)
        except Unsupported as error:
            names = f"twin-time-{pair.native}", f"twin-memory-{pair.native}"
            yield from unmeasurable(names, pair.twin, str(error))


def compare(pair: Pair, setting: Setting) -> Iterator[Finding]:
    torch.manual_seed(0)
    length = setting.size(LENGTH, 256)
    x = draw(BATCH, length, setting)
    native = variants.find(pair.native)(SIZE, **pair.options)
    twin = pair.build() if pair.build else variants.find(pair.twin)(SIZE, **pair.options)
    calls = {
        name: forward_and_backward(layer.to(setting.device), x)
        for name, layer in ((pair.native, native), (pair.twin, twin))
    }
    options = "".join(f", {name}={value}" for name, value in pair.options.items())
    how = f"B={BATCH} N={length} D={SIZE.dim} H={SIZE.heads}, fp32{options}"
    times = Times(calls, setting, rounds=15)
    yield times.finding(f"twin-time-{pair.native}", pair.native, pair.twin, how)
    peaks = peaks_of(calls, setting)
    yield memory(f"twin-memory-{pair.native}", how, peaks, pair.native, pair.twin)
