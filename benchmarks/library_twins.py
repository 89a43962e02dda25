"""Native variants compared with library packages: B=2 N=4096 D=64 H=2, fp32, both passes.

Run: OMP_NUM_THREADS=2 python -m benchmarks.library_twins > results/benchmarks/library_twins.jsonl
Claim: forward and backward of each native variant take at most 1.3 times as long as in the package.

With these options both compute the same amount. A package without projections is wrapped in those
of the native variant.
"""

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.turns import machine
from harness.measure import quartiles, take_turns
from zoo.contract import Size, Traits
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
    def turn() -> None:
        tokens_of(layer, x).square().mean().backward()
        layer.zero_grad()
        x.grad = None

    return turn


def measure(pair: Pair, rounds: int) -> dict[str, Any]:
    torch.manual_seed(0)
    x = torch.randn(BATCH, LENGTH, SIZE.dim, requires_grad=True)
    native = variants.find(pair.native)(SIZE, **pair.options)
    turns = [forward_and_backward(layer, x) for layer in (native, pair.build())]
    device = torch.device("cpu")
    native_seconds, twin_seconds = take_turns(turns, device, rounds)
    ratio = quartiles(a / b for a, b in zip(native_seconds, twin_seconds, strict=True))
    return {
        "native": pair.native,
        "options": pair.options,
        "twin": pair.twin,
        "milliseconds": quartiles(1000 * t for t in native_seconds).model_dump(),
        "twin's milliseconds": quartiles(1000 * t for t in twin_seconds).model_dump(),
        "ratio to twin": ratio.model_dump(),
        "peak MiB": peak_bytes(turns[0], device) / 2**20,
        "twin's peak MiB": peak_bytes(turns[1], device) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Native variants compared with library packages.")
    parser.add_argument("--rounds", type=int, default=31, help="timed calls of each implementation")
    parser.add_argument("--only", default="", help="native variants, separated by commas")
    arguments = parser.parse_args()
    print(json.dumps(machine()))
    for pair in PAIRS:
        if pair.native in (arguments.only.split(",") if arguments.only else [pair.native]):
            print(json.dumps(measure(pair, arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
