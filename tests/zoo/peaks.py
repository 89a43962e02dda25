"""Peak memory of training one layer at 4,096 tokens, and that of fused softmax."""

from functools import cache

import torch

import zoo
from zoo.cost import peak_bytes

N, DIM = 4096, 64


def training_peak(name: str, **options) -> int:
    """Peak memory of forward and backward of four samples, in bytes."""
    layer = zoo.create(name, dim=DIM, heads=2, max_len=N, **options)
    x = torch.randn(4, N, DIM)
    upstream = torch.randn_like(x)
    inputs = [x.requires_grad_(), *layer.parameters()]
    return peak_bytes(
        lambda: torch.autograd.grad((layer(x).tokens * upstream).sum(), inputs),
        torch.device("cpu"),
    )


@cache
def softmax_peak() -> int:
    """That of softmax by `scaled_dot_product_attention`."""
    return training_peak("softmax", backend="sdpa")
