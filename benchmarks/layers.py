"""Attention layers, forward and backward: Primal-Attention, every variant, and library packages."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.runner import Runner, milliseconds
from harness.costs.work import prepare
from harness.records.cost import Pass
from harness.records.fields import Precision
from harness.timing import Call
from zoo.contract import Attended, Size, Traits, Unsupported
from zoo.packages import load
from zoo.projected import ProjectedAttention
from zoo.variants import variants
from zoo.variants.primal import Primal

RANK, LENGTH = 30, 4096
SIZE = Size(dim=64, heads=2, max_len=LENGTH, causal=False, dropout=0.0)
"""The size of the smallest layers."""


def both_passes(layer: nn.Module, batch: int, length: int, runner: Runner) -> Call:
    """A call that computes tokens, losses, and the gradients of input and parameters."""
    layer.to(runner.device)
    x = torch.randn(batch, length, 64, device=runner.device, requires_grad=True)
    # Given, so that nothing but the layer is measured.
    upstream = torch.randn_like(x)

    def call() -> None:
        output = layer(x)
        # A layer of a package has no losses.
        tokens, losses = output if isinstance(output, Attended) else Attended(output)
        outputs = [tokens, *losses.values()]
        torch.autograd.backward(outputs, [upstream, *(None for _ in losses)])
        layer.zero_grad()
        x.grad = None

    return call


def measure_primal(runner: Runner) -> None:
    """The Primal-Attention layer, forward and backward: B=8 N=4096 D=64 H=2 s=30.

    Compared with its literal form, the published order of computation with all scores in memory,
    and with `none`, which projects tokens and does not mix them.
    """
    batch, size = runner.size(8, 2), replace(SIZE, max_len=runner.size(LENGTH, 64))
    torch.manual_seed(0)
    layers = {
        "primal": Primal(size, rank=RANK), "literal": Primal(size, rank=RANK, backend="literal"),
        "none": variants.find("none")(size),
    }  # fmt: skip
    calls = {n: both_passes(layer, batch, size.max_len, runner) for n, layer in layers.items()}
    shape = f"B={batch} N={size.max_len} D={size.dim} H={size.heads} s={RANK}, fp32"
    runner.compare(calls, shape, rounds=31)


def measure_memory(runner: Runner) -> None:
    """Every variant as a layer, forward and backward: B=4 N=4096 D=64 H=2, fp32.

    SDPA computes its weights again in the backward pass, so its memory is linear in N. Some
    variants compute a batch in parts, so that four samples take less than four times the memory of
    one, which [the page of costs](../results/cost.md) has.
    """
    # Bounds of times are 1.1 times what was measured (AMD EPYC with AVX512, two threads) before
    # these variants computed again in the backward pass what they do not store, so that less memory
    # does not cost time; of gated-linear less.
    batch, size = runner.size(4, 1), replace(SIZE, max_len=runner.size(LENGTH, 64))
    layers = {"softmax": variants.find("softmax")(size, backend="sdpa")}
    layers |= {name: variants.find(name)(size) for name in runner.subjects}
    calls = {n: both_passes(layer, batch, size.max_len, runner) for n, layer in layers.items()}
    shape = f"B={batch} N={size.max_len} D={size.dim} H={size.heads}, fp32, default options"
    runner.compare(calls, shape, rounds=5)


def measure_recurrences(runner: Runner) -> None:
    """The delta family, causal: forward and backward of 16,384 tokens, and decoding of one token.

    A layer of D=64 and H=2 at N=4096, and at 16 times that length in one sample.
    """
    length, family = runner.size(LENGTH, 64), runner.subjects

    def calls(
        operation: Pass, precision: Precision, length: int, batching: str = "1"
    ) -> dict[str, Call]:
        specs = runner.costs(
            [*family, "gated-linear", "linear"], [length], operations=[operation],
            precision=precision, batching=batching, causal=True,
        )  # fmt: skip
        # The last rows are softmax, first by SDPA and then by its formula.
        return {spec.attention: prepare(spec).call for spec in reversed(specs)}

    for precision in ("fp32", "bf16"):
        both = calls("train", precision, length, f"tokens={4 * length}")
        both = {f"{name}, {precision}": call for name, call in both.items()}
        runner.compare(both, f"B=4 N={length} D=64 H=2, causal, {precision}", rounds=9)
    decoding = {f"{name}, decoding": call for name, call in calls("decode", "fp32", length).items()}
    runner.compare(decoding, f"B=1 N={length} D=64 H=2, fp32", rounds=301)
    long, short = (calls("train", "fp32", n) for n in (16 * length, length))
    for name in family:
        seconds = runner.seconds({"long": long[name], "short": short[name]}, rounds=5)
        ratios = [a / b / 16 for a, b in zip(seconds["long"], seconds["short"], strict=True)]
        how = f"B=1 N={16 * length} and {length}, D=64 H=2, causal, fp32"
        runner.record(f"length-{name}", how, ratios, milliseconds(seconds))


OPTIONS: dict[str, dict[str, Any]] = {
    "performer": {"features": 256},
    "nystrom": {"landmarks": 64},
    "reformer": {"bucket": 64, "hashes": 2},
    "local": {"window": 64},
    "linformer": {"rank": 256},
    "softmax": {"backend": "sdpa"},
}
"""Options of native variants, and of variants that wrap a package."""


class WithProjections(ProjectedAttention):
    """A function of queries, keys and values, (b, h, n, e) each, between projections."""

    traits = Traits(causal=False, cross=False, linear=False, stochastic=False, recurrent=False)

    def __init__(self, inner: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        """Build projections of `SIZE` around `inner`."""
        super().__init__(SIZE)
        self.inner = inner

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """The output of the function, (b, h, n, e); the mask is not used."""
        return self.inner(q, k, v)


class SelfAttention(nn.MultiheadAttention):
    """PyTorch's layer, from tokens, (b, n, d), to themselves."""

    def forward(self, query: Tensor, *_: Any, **__: Any) -> Any:
        """New tokens, (b, n, d)."""
        return super().forward(query, query, query, need_weights=False)[0]


def layer_of(name: str) -> nn.Module:
    """A layer of a package that is no variant, by the name in the claims; Unsupported without."""
    module, _, kind = name.rpartition(".")
    if name == "torch.nn.MultiheadAttention":
        return SelfAttention(SIZE.dim, SIZE.heads, batch_first=True)
    package: Any = load("this benchmark", module, module.replace("_", "-"))
    if module == "linformer":
        return package.LinformerSelfAttention(SIZE.dim, LENGTH, k=256, heads=SIZE.heads)
    if module == "local_attention":
        options = {"exact_windowsize": True, "autopad": True, "use_rotary_pos_emb": False}
        return WithProjections(package.LocalAttention(64, **options))
    return WithProjections(getattr(package.linear_attention_transformer, kind))


def measure_twins(runner: Runner) -> None:
    """Native variants compared with library packages: B=2 N=4096 D=64 H=2, fp32, both passes.

    With these options both compute the same amount. A package without projections gets the ones
    that the native variant has.
    """
    batch, length = 2, runner.size(LENGTH, 256)
    for native, twin in dict.fromkeys((claim.of, claim.over) for claim in runner.claims.values()):
        torch.manual_seed(0)
        options = OPTIONS.get(native, {})
        try:
            layers: dict[str, nn.Module] = {native: variants.find(native)(SIZE, **options)}
            layers[twin] = layer_of(twin) if "." in twin else variants.find(twin)(SIZE, **options)
        except Unsupported as error:
            runner.skip(native, twin, str(error))
            continue
        calls = {n: both_passes(layer, batch, length, runner) for n, layer in layers.items()}
        texts = "".join(f", {name}={value}" for name, value in options.items())
        shape = f"B={batch} N={length} D={SIZE.dim} H={SIZE.heads}, fp32{texts}"
        runner.compare(calls, shape, rounds=15)
