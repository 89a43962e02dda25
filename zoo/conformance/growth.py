"""The claim that cost grows linearly, by operations and by memory."""

from collections.abc import Callable

import torch

from zoo.conformance.subject import Finding, Subject, attend, draw
from zoo.cost import flops, peak_bytes

SHORT, LONG = 1024, 4096
RATIO = LONG / SHORT
SLACK = 1.15
"""What a linear cost may exceed the ratio of lengths by: sorts, tails of blocks, constants."""


def operations_grow_linearly(subject: Subject) -> Finding:
    """FLOPs of forward and backward at four times the length."""
    return _verdict(subject, flops, "FLOPs")


def memory_grows_linearly(subject: Subject) -> Finding:
    """Peak memory of forward and backward at four times the length."""
    device = torch.device("cpu")
    return _verdict(subject, lambda step: peak_bytes(step, device), "peak memory")


def _verdict(subject: Subject, cost: Callable[[Callable[[], None]], int], what: str) -> Finding:
    """Of layers that are each built for the length that they get, without padding and with."""
    ratios = []
    for padded in (False, True):
        few, many = (cost(_both_ways(subject, n, padded)) for n in (SHORT, LONG))
        ratios.append(many / few if few else RATIO)
    return Finding(
        max(ratios) <= RATIO * SLACK,
        f"{what} grew {ratios[0]:.2f} times for {RATIO:.0f} times the tokens, "
        f"{ratios[1]:.2f} times with padding",
    )


def _both_ways(subject: Subject, n: int, padded: bool) -> Callable[[], None]:
    layer = subject.layer(max_len=n).float()
    x = draw(1, n).float().requires_grad_()
    mask = (torch.arange(n) < n * 3 // 4)[None] if padded else None

    def step() -> None:
        attend(layer, x, mask).square().mean().backward()

    step()
    return step
