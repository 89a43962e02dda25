"""The claim that cost is linear in the number of tokens, in FLOPs and in memory."""

from collections.abc import Callable
from itertools import pairwise

import torch

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import output, random_tokens
from zoo.cost import flops, peak_bytes

LENGTHS = (1024, 4096, 16384)  # A cost may become quadratic only where an input is long

# The factor by which a linear cost may exceed the ratio of lengths: sorts, incomplete blocks, and a
# forward pass that long inputs compute again.
SLACK = 1.4

# Whether an input has padding, and whether the layer trains on it.
CALLS = {
    "": (False, True), " with padding": (True, True), " in evaluation": (False, False)
}  # fmt: skip


def check_flops(configuration: Configuration) -> Outcome:
    """FLOPs of forward and backward, and of evaluation, at three lengths."""
    return _growth(configuration, flops, "FLOPs")


def check_memory(configuration: Configuration) -> Outcome:
    """Peak memory of forward and backward, and of evaluation, at three lengths."""

    def peak(step: Callable[[], None]) -> int:
        # The second call: the first allocates gradients, and tables that are kept.
        step()
        return peak_bytes(step, torch.device("cpu"))

    return _growth(configuration, peak, "peak memory")


def _growth(
    configuration: Configuration, cost: Callable[[Callable[[], None]], int], quantity: str
) -> Outcome:
    passed, details = True, []
    for call, (padded, training) in CALLS.items():
        costs, ratios = [cost(_step(configuration, LENGTHS[0], padded, training))], []
        for shorter, longer in pairwise(LENGTHS):
            costs.append(cost(_step(configuration, longer, padded, training)))
            ratio = costs[-1] / costs[-2] if costs[-2] else longer / shorter
            ratios.append(f"{ratio:.2f} times for {longer:,} tokens instead of {shorter:,}")
            if ratio > longer / shorter * SLACK:
                passed = False
                break
        details.append(f"{quantity}{call} {', '.join(ratios)}")
    return Outcome(passed, "; ".join(details))


def _step(configuration: Configuration, n: int, padded: bool, training: bool) -> Callable[[], None]:
    layer = configuration.layer(max_len=n).float().train(training)
    x = random_tokens(1, n).float().requires_grad_()
    mask = (torch.arange(n) < n * 3 // 4)[None] if padded else None

    def step() -> None:
        with torch.set_grad_enabled(training):
            loss = output(layer, x, mask).square().mean()
        if training:
            loss.backward()

    return step
