"""The Primal-Attention layer, forward and backward: B=8 N=4096 D=64 H=2 s=30.

Compared with its literal form, the published order of computation with all scores in memory, and
with `none`, which projects tokens and does not mix them.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.alternating import AlternatingTimes
from benchmarks.claims import Claim, Finding, Setting, same
from harness.cost.limits import measure_limits
from zoo.contract import Attention, Size
from zoo.cost import peak_bytes
from zoo.variants import variants
from zoo.variants.primal import Primal

RANK = 30

CLAIMS = [
    Claim(
        name="layer-time-literal",
        what="Time of a primal layer, forward and backward, over that of its literal form",
        bounds={"cpu": 0.45, "cuda": 0.5},
        limit="The matrix products of the folded form.",
    ),
    Claim(
        name="layer-memory-literal",
        what="Peak memory of a primal layer, forward and backward, over that of its literal form",
        bounds={"cpu": 0.33, "cuda": 0.4},
        limit="0.20: the output, its gradient and that of the input.",
    ),
    Claim(
        name="layer-time-none",
        what="Time of a primal layer, forward and backward, over that of `none`",
        bounds={"cpu": 2.8, "cuda": None},
        limit="The ratio of the times of their matrix products.",
    ),
    Claim(
        name="layer-time-bytes",
        what="Time of a primal layer, forward and backward, over that of transferring its input, "
        "its output, their gradients and its parameters at the rate of a large copy",
        bounds={"cpu": None, "cuda": 3.0},
        limit="1, by definition; a CPU is limited by its matrix products instead.",
    ),
]


def measure(setting: Setting) -> Iterator[Finding]:
    """See `CLAIMS`."""
    batch, length = setting.size(8, 2), setting.size(4096, 64)
    size = Size(dim=64, heads=2, max_len=length, causal=False, dropout=0.0)
    torch.manual_seed(0)
    primal, literal = Primal(size, rank=RANK), Primal(size, rank=RANK, backend="literal")
    literal.load_state_dict(primal.state_dict())
    layers = {"primal": primal, "literal": literal, "none": variants.find("none")(size)}
    x = torch.randn(batch, length, size.dim, device=setting.device, requires_grad=True)
    calls = {name: both_passes(layer.to(setting.device), x) for name, layer in layers.items()}
    shape = f"B={batch} N={length} D={size.dim} H={size.heads} s={RANK}, fp32"
    times = AlternatingTimes(calls, setting, rounds=31)
    yield times.finding("layer-time-literal", "primal", "literal", shape)
    yield times.finding("layer-time-none", "primal", "none", shape)
    peaks = {name: peak_bytes(calls[name], setting.device) for name in ("primal", "literal")}
    yield same(
        "layer-memory-literal",
        shape,
        peaks["primal"] / peaks["literal"],
        {f"{name} (MiB)": peak / 2**20 for name, peak in peaks.items()},
    )
    yield over_transfer(times, primal, x, setting, shape)


def over_transfer(
    times: AlternatingTimes, layer: Attention, x: Tensor, setting: Setting, shape: str
) -> Finding:
    """The finding of `layer-time-bytes`."""
    limits = measure_limits(setting.device, "fp32", budget=0.1 if setting.tiny else 1.0)
    parameters = sum(p.numel() for p in layer.parameters())
    least = 4 * (4 * x.numel() + 2 * parameters) / limits.bytes_per_second
    return Finding(
        name="layer-time-bytes",
        setting=f"{shape}; a copy moves {limits.bytes_per_second / 1e9:.3g} GB/s",
        ratios=[seconds / least for seconds in times.seconds["primal"]],
        figures=times.figures("primal"),
    )


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
