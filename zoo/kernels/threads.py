"""Loops over blocks of tensors on a CPU, shared by as many threads as PyTorch uses."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor


def share(loop: Callable[..., None], blocks: int, least: int, *arguments: Any) -> None:
    """Call `loop(*arguments, first, last)` for parts of `range(blocks)`, each on its thread.

    A thread has at least `least` blocks. `loop` releases the global interpreter lock.
    """
    threads = max(1, min(torch.get_num_threads(), blocks // least))
    own, *parts = pairwise(blocks * i // threads for i in range(threads + 1))
    others = [_pool().submit(loop, *arguments, *part) for part in parts]
    loop(*arguments, *own)
    for other in others:
        other.result()


def as_array(tensor: Tensor) -> np.ndarray:
    """The memory of a tensor on a CPU; bf16, which NumPy lacks, as uint16."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), "blocks")
