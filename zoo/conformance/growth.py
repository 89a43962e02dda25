"""The claim that cost grows linearly, by operations and by memory."""

from collections.abc import Callable

import torch

from zoo.conformance.subject import Finding, Subject, draw
from zoo.cost import flops, peak_bytes

SHORT, LONG = 1024, 4096
RATIO = LONG / SHORT
SLACK = 1.15
"""What a linear cost may exceed the ratio of lengths by: sorts, tails of blocks, constants."""


def operations_grow_linearly(subject: Subject) -> Finding:
    """FLOPs of forward and backward at four times the length."""
    few, many = (flops(_both_ways(subject, n)) for n in (SHORT, LONG))
    return _verdict(many / few, "FLOPs")


def memory_grows_linearly(subject: Subject) -> Finding:
    """Peak memory of forward and backward at four times the length."""
    device = torch.device("cpu")
    small, large = (peak_bytes(_both_ways(subject, n), device) for n in (SHORT, LONG))
    return _verdict(large / small, "peak memory")


def _both_ways(subject: Subject, n: int) -> Callable[[], None]:
    layer = subject.layer(max_len=LONG).float()
    x = draw(1, n).float().requires_grad_()

    def step() -> None:
        layer(x, x, None).tokens.square().mean().backward()

    step()
    return step


def _verdict(ratio: float, what: str) -> Finding:
    bound = RATIO * SLACK
    return Finding(
        ratio <= bound, f"{what} grew {ratio:.2f} times for {RATIO:.0f} times the tokens"
    )
