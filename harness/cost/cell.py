"""One cell of a cost sweep, measured in this process."""

import time

import torch

from harness.cost.timing import LEAST_ROUNDS, Timer, sample_alternately, timer_of
from harness.cost.work import Work, prepare
from harness.data import is_out_of_memory
from harness.measure import BACKEND, REFERENCE, quartiles
from harness.records.cost import CostSpec, Limits, Measured
from harness.train import autocast
from zoo.composition import Composition
from zoo.contract import Attention
from zoo.cost import backends, flops, peak_bytes

OPTIMISER_TRANSFERS = 7
"""AdamW reads a parameter, its gradient and both moments, and writes all but the gradient."""

REMAINING_CALLS = 2 + LEAST_ROUNDS + 2
"""Calls of a cell after its first one, at least: warm-up, samples, memory and operations."""


def measure_cell(spec: CostSpec, limits: Limits, budget: float, timeout: float) -> Measured:
    """Measure a cell and SDPA softmax alternately.

    Args:
        spec: the cell.
        limits: those of the device.
        budget: seconds of sampling, about.
        timeout: seconds that the cell has; where SDPA softmax would take it longer, it is left out.

    Raises:
        Unsupported: the variant has no such pass.
        MemoryError, RuntimeError: the device has too little memory, or the variant fails.
    """
    device, end = torch.device(spec.device), time.monotonic() + timeout
    timer, works = timer_of(device), [prepare(spec)]
    # First the cell itself, so that an error here is its own.
    first = timer(works[0].call, 1)
    own_is_reference, no_ratio = spec == reference_of(spec), ""
    if not own_is_reference:
        no_ratio = _add_reference(works, reference_of(spec), timer, end - REMAINING_CALLS * first)
    samples = sample_alternately([work.call for work in works], timer, budget=budget)
    peaks = [max(1, peak_bytes(work.call, device)) for work in works]
    pairs = zip(samples[0], samples[-1], strict=True)
    return Measured(
        seconds=quartiles(samples[0]),
        samples=len(samples[0]),
        ratio=None if no_ratio else quartiles(own / other for own, other in pairs),
        no_ratio=no_ratio,
        peak_bytes=peaks[0],
        memory_ratio=None if no_ratio else peaks[0] / peaks[-1],
        flops=flops(works[0].call),
        analytic_flops=analytic_flops(spec, works[0].module),
        backend=_backend(spec, works[0].module),
        required_bytes=required_bytes(spec, works[0]),
        parameters=_parameters(works[0]),
        state_bytes=works[0].state_bytes,
        limits=limits,
    )


def reference_of(spec: CostSpec) -> CostSpec:
    """The cell of SDPA softmax that `spec` is compared with."""
    composition = Composition.parse(REFERENCE)
    options = composition.resolve({REFERENCE: {"backend": BACKEND}})
    return spec.model_copy(update={"attention": REFERENCE, "options": options, "overrides": {}})


def required_bytes(spec: CostSpec, work: Work) -> int:
    """Bytes that any layer of this shape transfers in one call, in the precision of the cell.

    Evaluation reads the tokens and the parameters and writes new tokens; training also reads the
    gradient of the new tokens and writes that of the tokens and the parameters; decoding also reads
    the state. A model has these transfers in each of its layers, and those of the optimiser. Any
    more is the choice of an implementation.
    """
    item = 2 if spec.precision == "bf16" else 4
    tokens = spec.batch * (1 if spec.operation == "decode" else spec.length)
    training = spec.operation == "train"
    layers = spec.model.depth if spec.model else 1
    transfers = layers * tokens * spec.dim * item * (4 if training else 2)
    per_parameter = (2 if training else 1) + (OPTIMISER_TRANSFERS if spec.model and training else 0)
    return transfers + 4 * per_parameter * _parameters(work) + (work.state_bytes or 0)


def analytic_flops(spec: CostSpec, module: torch.nn.Module) -> int | None:
    """The operations of the formula of a layer; training has three times those of evaluation.

    Each product of two tensors has two more in the backward pass, one for each gradient.
    """
    if not isinstance(module, Attention) or spec.operation == "decode":
        return None
    forward = module.analytic_flops(spec.length)
    passes = 3 if spec.operation == "train" else 1
    return None if forward is None else passes * spec.batch * forward


def _add_reference(works: list[Work], spec: CostSpec, timer: Timer, end: float) -> str:
    """Add the work of SDPA softmax; why not, if it has too little memory or time until `end`."""
    try:
        work = prepare(spec)
        seconds = timer(work.call, 1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return f"{REFERENCE} is out of memory"
    if REMAINING_CALLS * seconds > end - time.monotonic():
        return f"no time is left for {REFERENCE}: {seconds:.2g} s a call"
    works.append(work)
    return ""


def _parameters(work: Work) -> int:
    return sum(p.numel() for p in work.module.parameters() if p.requires_grad)


def _backend(spec: CostSpec, module: torch.nn.Module) -> str:
    n = 1 if spec.operation == "decode" else spec.length
    with autocast(spec.device, spec.precision):
        return backends(module, torch.device(spec.device), (spec.batch, n, spec.dim))
