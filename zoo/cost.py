"""What a piece of code costs beyond time: memory and floating-point operations."""

import gc
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    """The most memory allocated during `step`, beyond what was held before it, in bytes.

    On a CPU a step that frees older memory is charged for it as if it were still held.
    """
    # Garbage that happens to go during the step would be counted as room that it made.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - held
    # Accumulating changes nothing in one cycle, but some versions of torch warn without it.
    kinds = [ProfilerActivity.CPU]
    with profile(activities=kinds, profile_memory=True, acc_events=True) as profiled:
        step()
    held = peak = 0
    for change in _allocations(profiled):
        held += change
        peak = max(peak, held)
    return peak


def flops(step: Callable[[], Any]) -> int:
    """Floating-point operations in the matrix products of `step`, forward and backward.

    Softmax, cumulative sums, sorting and elementwise work count as nothing.
    """
    with FlopCounterMode(display=False, custom_mapping=_UNCOUNTED) as counter:
        step()
    return counter.get_total_flops()


def _allocations(profiled: profile) -> list[int]:
    """Bytes allocated (negative: freed) in order of time.

    From the profiler's event tree, which is private: the memory rows of its public tables stay 0.
    """
    profiler: Any = profiled.profiler
    events = list(profiler.kineto_results.experimental_event_tree())
    changes = []
    while events:
        event = events.pop()
        events.extend(event.children)
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(changes, key=lambda change: change[0])]


def _attention_flops(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return sdpa_flop_count(query, key, value)


def _attention_backward_flops(
    gradient: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any
) -> int:
    return sdpa_backward_flop_count(gradient, query, key, value)


def _added_product_flops(_: Any, left: Any, right: Any, *__: Any, **___: Any) -> int:
    batch, rows, inner = left
    return 2 * batch * rows * inner * right[-1]


# What PyTorch's counter takes for nothing: attention on the CPU, and a product added in place.
_UNCOUNTED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward_flops,
    torch.ops.aten.baddbmm_: _added_product_flops,
}
