"""The timed call of a measurement, by its specification."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch

from harness.data import data_of
from harness.model import Classifier, Stack, build_model
from harness.records.cost import STEP, CostSpec
from harness.records.spec import Encoder, TrainSpec
from harness.train import Trainer, autocast
from tasks.contract import Split
from zoo.composition import Composition, build
from zoo.contract import Attention, Size, Unsupported, decoding
from zoo.cost import backends, flops, state_bytes
from zoo.variants import variants

VOCABULARY, CLASSES = 256, 10  # Of the model of level `step`


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


def require_supported(spec: CostSpec) -> None:
    for name in spec.options:
        variant = variants.find(name)
        variant.require_form(causal=spec.causal)
        if spec.operation in ("prefill", "decode") and not variant.decodes():
            raise Unsupported(f"{name} does not decode; variants that do: {decoding()}")


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
