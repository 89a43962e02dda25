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
    """`function(*inputs)`, which training on a CPU computes for each sample, or a few small ones.

    For a function whose samples do not depend on one another. The first axis of each input is the
    batch, or 1 for all samples alike.

    Args:
        function: what is computed.
        inputs: its arguments.
        again: whether the backward pass computes the samples again, so that it has the intermediate
            results of one in memory; if not, the forward pass stores them.
        size: the number of samples that are computed together; by default as few as are fast.
    """
    batch, size = inputs[0].shape[0], size or samples_at_a_time(inputs[0])
    if size >= batch:
        return function(*inputs)
    batches = (x.expand(batch, *x.shape[1:]).split(size) for x in inputs)
    *samples, last = zip(*batches, strict=True)
    compute = partial(recomputed, function) if again else function
    # The backward pass begins with the last: it would compute at once what is stored here.
    return torch.cat([*(compute(*sample) for sample in samples), function(*last)])


def samples_at_a_time(x: Tensor, blocks: int | None = None, batch_parts: int | None = None) -> int:
    """The number of samples that `sample_by_sample` computes together.

    Args:
        x: its first input.
        blocks: the blocks of a sample that can have a thread each, where they limit the threads in
            use: so many samples are computed together that each thread has one.
        batch_parts: of the batch, at most; by default as many as there are samples.
    """
    if not torch.is_grad_enabled() or not eager.on_cpu(x):
        return x.shape[0]
    per_part = 1 if batch_parts is None else ceil(x.shape[0] / batch_parts)
    per_thread = 1 if blocks is None else ceil(torch.get_num_threads() / blocks)
    return max(per_part, per_thread, ceil(LARGE / max(1, x[:1].numel())))


class _Part(nn.Module):
    def __init__(self, layer: nn.Module, forward: Callable[..., Attended]) -> None:
        super().__init__()
        self.layer = layer
        self.function = forward

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.function(self.layer, x, x, mask).tokens


def in_parts(forward: Callable[..., Attended]) -> Callable[..., Attended]:
    """Decorate `forward` of self-attention: training on a CPU computes a large batch in parts.

    The class attribute `batch_parts` is their number. All but the last are computed again in the
    backward pass. It has no effect on a layer with auxiliary losses.
    """

    @wraps(forward)
    def compute(
        layer: Any, x: Tensor, context: Tensor | None = None, mask: Tensor | None = None
    ) -> Attended:
        divisible = (context is None or context is x) and not layer.traits.losses
        number = layer.batch_parts if divisible else 1
        size = samples_at_a_time(x, layer.size.heads, number) if number > 1 else x.shape[0]
        if size >= x.shape[0]:
            return forward(layer, x, context, mask)
        part = _Part(layer, forward)
        # As they are in this call: `functional_call` may have replaced them for it.
        state = {**dict(part.named_parameters()), **dict(part.named_buffers())}
        inputs = [x] if mask is None else [x, mask]
        tokens = sample_by_sample(
            lambda *sample: functional_call(part, state, sample), *inputs, size=size
        )
        return Attended(tokens)

    return compute
