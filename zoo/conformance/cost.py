"""The claim that cost is linear in the number of tokens, in FLOPs and in memory."""

from collections.abc import Callable

import torch

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import output, random_tokens
from zoo.cost import flops, peak_bytes

SHORT, LONG = 1024, 4096
RATIO = LONG / SHORT
SLACK = 1.15
"""The factor by which a linear cost may exceed the ratio of lengths: sorts, incomplete blocks."""


def check_flops(configuration: Configuration) -> Outcome:
    """FLOPs of forward and backward at four times the length."""
    return _growth(configuration, flops, "FLOPs")


def check_memory(configuration: Configuration) -> Outcome:
    """Peak memory of forward and backward at four times the length."""

    def peak(step: Callable[[], None]) -> int:
        # The second call: the first allocates gradients, and tables that are kept.
        step()
        return peak_bytes(step, torch.device("cpu"))

    return _growth(configuration, peak, "peak memory")


def _growth(
    configuration: Configuration, cost: Callable[[Callable[[], None]], int], quantity: str
) -> Outcome:
    """Compare the cost at two lengths, without and with padding; `max_len` is the length."""
    ratios = []
    for padded in (False, True):
        short, long = (cost(_step(configuration, n, padded)) for n in (SHORT, LONG))
        ratios.append(long / short if short else RATIO)
    return Outcome(
        max(ratios) <= RATIO * SLACK,
        f"{quantity} {ratios[0]:.2f} times as large for {RATIO:.0f} times the tokens, "
        f"{ratios[1]:.2f} times with padding",
    )


def _step(configuration: Configuration, n: int, padded: bool) -> Callable[[], None]:
    """A function that runs forward and backward over n tokens."""
    layer = configuration.layer(max_len=n).float()
    x = random_tokens(1, n).float().requires_grad_()
    mask = (torch.arange(n) < n * 3 // 4)[None] if padded else None

    def step() -> None:
        output(layer, x, mask).square().mean().backward()

    return step
