"""The cost of a piece of code in memory and floating-point operations."""

from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from zoo.contract import Attention, State
from zoo.registry import uncollected


def peak_bytes(step: Callable[[], Any], device: torch.device) -> int:
    # On a CPU, memory that was allocated before counts as allocated even if `step` frees it.
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        with uncollected():
            step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    activities = [ProfilerActivity.CPU]
    with uncollected(), profile(activities=activities, profile_memory=True) as profiled:
        step()
    allocated = peak = 0
    for change in _allocations(profiled):
        allocated += change
        peak = max(peak, allocated)
    return peak


def flops(step: Callable[[], Any]) -> int:
    # Softmax, cumulative sums, sorting and elementwise operations are not counted.
    with FlopCounterMode(display=False, custom_mapping=_FORMULAS) as counter:
        step()
    return counter.get_total_flops()


def backends(module: nn.Module, device: torch.device, shape: tuple[int, int, int]) -> str:
    # For tokens of `shape`, (b, n, d), in the current autocast; empty if each layer has only one.
    # Without memory: the choice depends on shape, dtype and device alone.
    x = torch.empty((), device=device).expand(shape)
    layers = (layer for layer in module.modules() if isinstance(layer, Attention))
    names = dict.fromkeys(layer.backend_for(x) for layer in layers)
    return "+".join(filter(None, names))


def state_bytes(state: State) -> int:
    return sum(part.numel() * part.element_size() for part in state)


def _allocations(profiled: profile) -> list[int]:
    # From the event tree of the profiler, which is private: its public tables have no memory rows.
    profiler: Any = profiled.profiler
    events = list(profiler.kineto_results.experimental_event_tree())
    changes = []
    while events:
        event = events.pop()
        events.extend(event.children)
        if event.name == "[memory]":
            changes.append((event.start_time_ns, event.extra_fields.alloc_size))
    return [size for _, size in sorted(changes, key=lambda change: change[0])]


_aten = torch.ops.aten
# FLOPs, from shapes, of operations that PyTorch does not count.
_FORMULAS: dict[Any, Callable[..., int]] = {
    _aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: sdpa_flop_count(query, key, value)
    ),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda gradient, *shapes, **_: sdpa_backward_flop_count(gradient, *shapes[:3])
    ),
    _aten.baddbmm_: lambda _, left, right, **__: 2 * prod(left) * right[-1],
}
