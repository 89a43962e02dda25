"""What a device can do at most: the rate of a copy, and of a matrix product."""

from statistics import median

import torch

from harness.records.cost import Limits
from harness.timing import sample, timer_of

COPIED_BYTES = {"cpu": 256 * 2**20, "cuda": 2 * 2**30}
"""Size of the copied tensor: larger than every cache."""
SIDE = {"cpu": 1024, "cuda": 8192}
"""Rows and columns of the matrices."""


def measure_limits(device: torch.device, precision: str, budget: float = 1.0) -> Limits:
    """The rates of a large copy and of a large matrix product, by their medians.

    Args:
        device: the device.
        precision: `bf16` or `fp32`, of the product.
        budget: seconds of sampling, about.
    """
    copies, products = _sample(device, precision, budget)
    # The processes of the measurements need the memory that this process would keep.
    torch.cuda.empty_cache()
    return Limits(
        bytes_per_second=2 * COPIED_BYTES[device.type] / median(copies),
        flops_per_second=2 * SIDE[device.type] ** 3 / median(products),
    )


def _sample(device: torch.device, precision: str, budget: float) -> list[list[float]]:
    """Seconds of the copy, and of the product."""
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    count = COPIED_BYTES[device.type] // 4
    # Not zeros: pages that were never written are all one page, which the cache holds.
    source, target = (torch.ones(count, device=device) for _ in range(2))
    side = SIDE[device.type]
    left, right, product = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(3))
    return sample(
        [lambda: target.copy_(source), lambda: torch.mm(left, right, out=product)],
        timer_of(device),
        budget=budget,
    )
