"""One measurement of a cost sweep in this process, and the limits of its device."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from statistics import median
from typing import Any, cast

import torch

from harness.costs.plan import candidates, reference_of
from harness.data import data_of, is_out_of_memory
from harness.model import Classifier, Stack, build_model, trainable
from harness.records.cost import REFERENCE, SDPA, STEP, CostSpec, Limits, Measured, softmax_by
from harness.records.fields import Quartiles
from harness.records.spec import Encoder, TrainSpec
from harness.timing import LEAST_ROUNDS, Timer, sample, short_trial, timer_of
from harness.train import Trainer, autocast
from tasks.contract import Split
from zoo.composition import Composition, build
from zoo.contract import Attention, Size
from zoo.cost import backends, flops, peak_bytes, state_bytes

VOCABULARY, CLASSES = 256, 10  # Of the model of level `step`
# AdamW reads a parameter, its gradient and both moments, and writes all but the gradient.
OPTIMISER_TRANSFERS = 7
# Calls after the first one, at least: warm-up, samples, memory and operations.
REMAINING_CALLS = 2 + LEAST_ROUNDS + 3
TRIAL_CALLS = 8  # A trial of two backends takes as long as so many calls of SDPA, at most
# Other backends must take less than this share of SDPA's time: equally fast ones must not change
# places between processes.
MARGIN = 0.95
COPIED_BYTES = {"cpu": 256 * 2**20, "cuda": 2 * 2**30}  # Larger than every cache
SIDE = {"cpu": 1024, "cuda": 8192}  # Rows and columns of the matrices


@dataclass(frozen=True)
class TimedCall:
    call: Callable[[], Any]
    module: torch.nn.Module
    state_bytes: int | None = None


def prepare(spec: CostSpec) -> TimedCall:
    torch.manual_seed(0)
    if spec.level == "layer":
        return _layer_call(spec)
    trainer = trainer_of(spec)
    if spec.operation == "train":

        def train() -> None:
            trainer.model.train()
            trainer.step(0)

        return TimedCall(train, trainer.model)
    batch = trainer.train.gather(trainer.order.batch(0))
    call = _evaluation(spec, trainer.model, lambda: trainer.scores(batch))
    return TimedCall(call, trainer.model)


def _layer_call(spec: CostSpec) -> TimedCall:
    layer = _layers(spec)[0].to(spec.device)
    if spec.operation == "decode":
        return _decoding(spec, layer)
    x = torch.randn(spec.batch, spec.length, spec.dim, device=spec.device)
    if spec.operation not in ("train", "packed"):
        forward = layer.prefill if spec.operation == "prefill" else layer
        return TimedCall(_evaluation(spec, layer, lambda: forward(x)), layer)
    x.requires_grad_()
    upstream, segments = torch.randn_like(x), None
    if spec.operation == "packed":
        rest = spec.length - torch.arange(spec.length, device=spec.device)
        segments = (spec.length / rest).log2().long().expand(spec.batch, -1)

    def train() -> None:
        with autocast(spec.device, spec.precision):
            tokens, losses = layer(x, segments=segments)
        total = (tokens * upstream).sum()
        torch.stack([total, *losses.values()]).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return TimedCall(train, layer)


def trainer_of(spec: CostSpec) -> Trainer:
    model = cast(Encoder, spec.model)
    if spec.task and spec.train:
        data = data_of(spec.task)
        layers = Composition.parse(spec.attention).layers(model.depth)
        built = build_model(Stack(model, layers, spec.options), data.task)
        split, recipe = data.splits["train"], spec.train
    else:
        tokens = torch.randint(1, VOCABULARY, (spec.batch, spec.length))
        targets = torch.randint(CLASSES, (spec.batch,))
        split = Split.single(tokens, torch.full((spec.batch,), spec.length), targets)
        built = Classifier(
            _layers(spec), model, vocabulary=VOCABULARY, classes=CLASSES, sequences=1
        )
        fields = {"batch": spec.batch, "precision": spec.precision, "compiled": False}
        recipe = TrainSpec.model_validate({**fields, **STEP})
    return Trainer(built.to(spec.device), split.to(spec.device), recipe, seed=0)


def counts(spec: CostSpec, timed: TimedCall) -> tuple[int, str]:
    length = 1 if spec.operation == "decode" else spec.length
    with autocast(spec.device, spec.precision):
        shape = (spec.batch, length, spec.dim)
        backend = backends(timed.module, torch.device(spec.device), shape)
    if spec.train and spec.train.compiled:
        # A compiled model does not make the PyTorch calls that are counted.
        train, backend = spec.train.model_copy(update={"compiled": False}), "compiled"
        timed = prepare(spec.model_copy(update={"train": train}))
    return flops(timed.call), backend


def _layers(spec: CostSpec) -> list[Attention]:
    depth, dropout = (spec.model.depth, spec.model.attention_dropout) if spec.model else (1, 0.0)
    size = Size(
        dim=spec.dim, heads=spec.heads, max_len=spec.length, causal=spec.causal, dropout=dropout
    )
    return build(Composition.parse(spec.attention).layers(depth), size, spec.options)


def _evaluation(
    spec: CostSpec, module: torch.nn.Module, forward: Callable[[], Any]
) -> Callable[[], Any]:
    module.eval()

    @torch.inference_mode()
    def call() -> None:
        with autocast(spec.device, spec.precision):
            forward()

    return call


def _decoding(spec: CostSpec, layer: Attention) -> TimedCall:
    # After a prompt of `spec.length` tokens, unless the state has a fixed size.
    token = torch.randn(spec.batch, spec.dim, device=spec.device)
    layer.eval()
    with torch.inference_mode(), autocast(spec.device, spec.precision):
        state = layer.start(spec.batch)
        if not layer.traits.recurrent:
            _, state = layer.prefill(token[:, None].expand(-1, spec.length, -1))
    call = _evaluation(spec, layer, lambda: layer.step(token, state))
    return TimedCall(call, layer, state_bytes(state))


def measure(spec: CostSpec, limits: Limits, seconds: float, timeout: float) -> Measured:
    # Without SDPA softmax if it would exceed the timeout.
    end, timer = time.monotonic() + timeout, timer_of(torch.device(spec.device))
    timed = prepare(spec)
    # First, so that its errors are not those of softmax.
    first = timer(timed.call, 1)
    softmax, no_ratio = _softmax(spec, timer, end - REMAINING_CALLS * first)
    reference, fastest = next(iter(softmax.items()), ("", timed))
    options = softmax_by(reference, spec.options)
    if reference and spec.options != options:
        spec = spec.model_copy(update={"options": options})
        timed = prepare(spec)
    is_compared = reference and spec != reference_of(spec, reference)
    samples = sample([timed.call, *[fastest.call] * bool(is_compared)], timer, seconds=seconds)
    flops, backend = counts(spec, timed)
    peak, total = _bytes(spec, timed)
    of_softmax: dict[str, Any] = {"memory_ratio": None}
    if sdpa := softmax.get(SDPA):
        of_sdpa = total if spec == reference_of(spec) else _bytes(reference_of(spec), sdpa)[1]
        of_softmax = {"memory_ratio": total / of_sdpa, "softmax_parameters": trainable(sdpa.module)}
    return Measured(
        seconds=Quartiles.of(samples[0]), samples=len(samples[0]),
        ratio=Quartiles.of_ratio(samples[0], samples[-1]) if reference else None,
        no_ratio=no_ratio, reference=reference, limits=limits, flops=flops, backend=backend,
        analytic_flops=analytic_flops(spec, timed.module),
        required_bytes=required_bytes(spec, timed), parameters=trainable(timed.module),
        peak_bytes=peak, memory_batch=memory_batch(spec), memory_bytes=total,
        state_bytes=timed.state_bytes, **of_softmax,
    )  # fmt: skip


def _softmax(spec: CostSpec, timer: Timer, end: float) -> tuple[dict[str, TimedCall], str]:
    names, fastest = candidates(spec), SDPA

    @cache
    def built(name: str) -> TimedCall:
        return prepare(reference_of(spec, name))

    try:
        seconds = timer(built(SDPA).call, 1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return {}, f"{REFERENCE} is out of memory"
    count = REMAINING_CALLS + (TRIAL_CALLS if len(names) > 1 else 0)
    if count * seconds > end - time.monotonic():
        return {}, f"no time is left for {REFERENCE}: {seconds:.2g} s a call"
    if len(names) > 1:
        least = short_trial({name: lambda name=name: built(name).call for name in names}, timer)
        fastest = min(least, key=lambda name: least[name] * (MARGIN if name == SDPA else 1))
    return {name: built(name) for name in (fastest, SDPA)}, ""


def memory_batch(spec: CostSpec) -> int:
    # One sample if the batch depends on the length.
    return 1 if spec.batching.startswith("tokens=") else spec.batch


def required_bytes(spec: CostSpec, timed: TimedCall) -> int:
    # Evaluation reads tokens and parameters and writes new tokens; training also reads the gradient
    # of the new tokens and writes gradients of tokens and parameters; decoding also reads the
    # state. A model has these transfers in each layer, and those of the optimiser.
    item = 2 if spec.precision == "bf16" else 4
    tokens = spec.batch * (1 if spec.operation == "decode" else spec.length)
    training = spec.operation in ("train", "packed")
    layers = spec.model.depth if spec.model else 1
    transfers = layers * tokens * spec.dim * item * (4 if training else 2)
    per_parameter = (2 if training else 1) + (OPTIMISER_TRANSFERS if spec.model and training else 0)
    return transfers + 4 * per_parameter * trainable(timed.module) + (timed.state_bytes or 0)


def analytic_flops(spec: CostSpec, module: torch.nn.Module) -> int | None:
    # Each product of two tensors has two products in the backward pass.
    if not isinstance(module, Attention) or spec.operation in ("packed", "decode"):
        return None
    forward = module.analytic_flops(spec.length)
    passes = 3 if spec.operation == "train" else 1
    return None if forward is None else passes * spec.batch * forward


def _bytes(spec: CostSpec, timed: TimedCall) -> tuple[int, int]:
    if (batch := memory_batch(spec)) != spec.batch:
        timed = prepare(spec.model_copy(update={"batch": batch}))
    timed.call()
    peak = max(1, peak_bytes(timed.call, torch.device(spec.device)))
    return peak, peak + (timed.state_bytes or 0)


def measure_limits(device: torch.device, precision: str, seconds: float = 1.0) -> Limits:
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    count, side = COPIED_BYTES[device.type] // 4, SIDE[device.type]
    # Not zeros: unwritten pages are all one page, which the cache holds.
    source, target = (torch.ones(count, device=device) for _ in range(2))
    left, right, product = (torch.ones(side, side, device=device, dtype=dtype) for _ in range(3))
    calls = [partial(target.copy_, source), partial(torch.mm, left, right, out=product)]
    copies, products = sample(calls, timer_of(device), seconds=seconds)
    del calls, source, target, left, right, product
    # Processes of measurements need the memory.
    torch.cuda.empty_cache()
    return Limits(
        bytes_per_second=2 * COPIED_BYTES[device.type] / median(copies),
        flops_per_second=2 * side**3 / median(products),
    )
