"""Results that training computes again in the backward pass instead of storing them.

Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016, arXiv 1604.06174, for each layer
of an encoder, or each sample of a layer or mechanism. The second computation repeats the first,
with the same random numbers and autocast: outputs and gradients do not change.
"""

from collections.abc import Callable
from functools import partial, wraps
from math import ceil
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

from zoo.contract import Attended
from zoo.kernels import eager

# What an encoder layer may compute again: nothing; the attention; the whole layer.
RECOMPUTE = "none", "attention", "layer"

# Entries of the first input in the samples that `sample_by_sample` computes together, at least: 1
# MiB in fp32. With fewer, starting the operations would take much of the time.
LARGE = 2**18

Result = TypeVar("Result")


def recomputed(function: Callable[..., Result], *inputs: Any) -> Result:
    # Parameters that `function` uses get their gradients too; they must not change in between.
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False)


def sample_by_sample(
    function: Callable[..., Tensor], *inputs: Tensor, again: bool = True, size: int | None = None
) -> Tensor:
    # `function(*inputs)`, which training on a CPU computes for `size` samples at a time, by default
    # as few as are fast. The first axis of an input is the batch, or 1 for all samples alike. The
    # backward pass computes samples `again`, or has their intermediate results stored.
    batch, size = inputs[0].shape[0], size or samples_at_a_time(inputs[0])
    if size >= batch:
        return function(*inputs)
    batches = (x.expand(batch, *x.shape[1:]).split(size) for x in inputs)
    *samples, last = zip(*batches, strict=True)
    compute = partial(recomputed, function) if again else function
    # The backward pass begins with the last: it would compute at once what is stored here.
    return torch.cat([*(compute(*sample) for sample in samples), function(*last)])


def samples_at_a_time(x: Tensor, blocks: int | None = None, batch_parts: int | None = None) -> int:
    # `blocks` of a sample can have a thread each: each thread should have one. The batch has at
    # most `batch_parts` parts, by default as many as samples.
    if not torch.is_grad_enabled() or not eager.on_cpu(x):
        return x.shape[0]
    per_part = 1 if batch_parts is None else ceil(x.shape[0] / batch_parts)
    per_thread = 1 if blocks is None else ceil(torch.get_num_threads() / blocks)
    return max(per_part, per_thread, ceil(LARGE / max(1, x[:1].numel())))


class _Method(nn.Module):
    # A method of a layer, as a module whose parameters can be replaced for a call.

    def __init__(self, layer: nn.Module, method: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.method = layer, method

    def forward(self, *inputs: Any) -> Any:
        return self.method(self.layer, *inputs)


def as_function(layer: nn.Module, method: Callable[..., Any]) -> Callable[..., Any]:
    # With the parameters of this call: `functional_call` may have replaced them for it.
    part = _Method(layer, method)
    state = {**dict(part.named_parameters()), **dict(part.named_buffers())}
    return lambda *inputs: functional_call(part, state, inputs)


def in_parts(forward: Callable[..., Attended]) -> Callable[..., Attended]:
    # Training on a CPU computes a large batch of self-attention in `batch_parts` parts, a class
    # attribute, and all but the last again in the backward pass. Auxiliary losses prevent it.
    @wraps(forward)
    def compute(
        layer: Any, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Attended:
        divisible = (context is None or context is x) and not layer.traits.losses
        number = layer.batch_parts if divisible else 1
        size = samples_at_a_time(x, layer.size.heads, number) if number > 1 else x.shape[0]
        if size >= x.shape[0]:
            return forward(layer, x, context, mask)
        attend = as_function(layer, lambda layer, x, *mask: forward(layer, x, x, *mask).tokens)
        inputs = [x] if mask is None else [x, mask]
        return Attended(sample_by_sample(attend, *inputs, size=size))

    return compute
