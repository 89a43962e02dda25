"""What a cell of a cost sweep times: a call that does the work of one specification."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from harness.classifier import Classifier
from harness.records.cost import CostSpec
from harness.records.spec import ModelSpec, TrainSpec
from harness.train import Trainer, autocast
from tasks.contract import Split
from zoo.composition import Composition
from zoo.contract import Attention, Size, Traits, Unsupported, names_with
from zoo.cost import state_bytes
from zoo.projected import ProjectedAttention
from zoo.variants import variants

VOCABULARY, CLASSES = 256, 10
"""Vocabulary size and number of classes of the model where the level is `step`."""

STEPS = 1_000_000
"""Steps of the learning rate schedule: more than any measurement takes."""


@dataclass(frozen=True)
class Work:
    """A call and what it works on.

    Attributes:
        call: does the work once; its result is discarded.
        module: the layer or the model.
        state_bytes: memory of the state of decoding; None without one.
    """

    call: Callable[[], Any]
    module: torch.nn.Module
    state_bytes: int | None = None


def prepare(spec: CostSpec) -> Work:
    """Build what `spec` describes, with random parameters and inputs.

    Raises:
        Unsupported: the variant has no such pass.
    """
    torch.manual_seed(0)
    build = _layer_work if spec.level == "layer" else _step_work
    return build(spec)


def require_supported(spec: CostSpec) -> None:
    """Reject a pass that a variant does not have, before anything is built.

    Raises:
        Unsupported: a variant is not causal, or has no state to decode with.
    """
    for name in Composition.parse(spec.attention).names:
        variant = variants.find(name)
        if spec.causal and not variant.traits.causal:
            raise Unsupported(f"{name} is not causal; causal variants: {names_with('causal')}")
        if spec.operation == "decode" and not (variant.traits.recurrent or caches(variant)):
            raise Unsupported(
                f"{name} decodes neither with a state nor with a cache of keys and values; "
                f"recurrent variants: {names_with('recurrent')}"
            )


def caches(variant: type[Attention]) -> bool:
    """Whether a variant decodes by attending from one token to a cache of keys and values."""
    traits = variant.traits
    quadratic = traits.causal and traits.cross and not traits.linear
    return quadratic and issubclass(variant, ProjectedAttention) and not variant.shared_qk


def _layer_work(spec: CostSpec) -> Work:
    cached = spec.operation == "decode" and not _traits(spec).recurrent
    # One query attends to every cached key: a causal mask would exclude none of them.
    layer = _layers(spec, depth=1, causal=spec.causal and not cached)[0].to(spec.device)
    if cached:
        return _cached_decoding(spec, cast(ProjectedAttention, layer))
    if spec.operation == "decode":
        return _recurrent_decoding(spec, layer)
    x = torch.randn(spec.batch, spec.length, spec.dim, device=spec.device)
    if spec.operation != "train":
        return Work(_evaluation(spec, layer, lambda: layer(x)), layer)
    x.requires_grad_()
    upstream = torch.randn_like(x)

    def train() -> None:
        with autocast(spec.device, spec.precision):
            tokens, losses = layer(x)
        total = (tokens * upstream).sum()
        torch.stack([total, *losses.values()]).sum().backward()
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return Work(train, layer)


def _step_work(spec: CostSpec) -> Work:
    model_spec = cast(ModelSpec, spec.model)
    tokens = torch.randint(1, VOCABULARY, (spec.batch, spec.length))
    targets = torch.randint(CLASSES, (spec.batch,))
    split = Split.single(tokens, torch.full((spec.batch,), spec.length), targets).to(spec.device)
    model = Classifier(
        _layers(spec, depth=model_spec.depth, causal=spec.causal),
        vocabulary=VOCABULARY,
        classes=CLASSES,
        sequences=1,
        feed_forward=model_spec.feed_forward,
        head=model_spec.head,
        dropout=model_spec.dropout,
        recompute=model_spec.recompute,
    ).to(spec.device)
    trainer = Trainer(model, split, _recipe(spec), seed=0)
    if spec.operation == "train":
        return Work(lambda: trainer.step(0), model)
    batch = split.gather(trainer.order.batch(0))
    return Work(_evaluation(spec, model, lambda: model(batch)), model)


def _layers(spec: CostSpec, *, depth: int, causal: bool) -> list[Attention]:
    size = Size(
        dim=spec.dim,
        heads=spec.heads,
        max_len=spec.length,
        causal=causal,
        dropout=spec.model.attention_dropout if spec.model else 0.0,
    )
    return Composition.parse(spec.attention).build(size, depth, spec.options)


def _traits(spec: CostSpec) -> Traits:
    return variants.find(spec.attention).traits


def _recipe(spec: CostSpec) -> TrainSpec:
    return TrainSpec(
        batch=spec.batch,
        steps=STEPS,
        warmup=0,
        lr=1e-4,
        betas=(0.9, 0.999),
        cycle_momentum=False,
        eps=1e-6,
        weight_decay=0.0,
        evaluations=1,
        precision=spec.precision,
        compiled=False,
    )


def _evaluation(
    spec: CostSpec, module: torch.nn.Module, forward: Callable[[], Any]
) -> Callable[[], Any]:
    module.eval()

    @torch.inference_mode()
    def call() -> None:
        with autocast(spec.device, spec.precision):
            forward()

    return call


def _recurrent_decoding(spec: CostSpec, layer: Attention) -> Work:
    """One step; the size of the state does not depend on the length of the prompt."""
    token = torch.randn(spec.batch, spec.dim, device=spec.device)
    state = layer.start(spec.batch)
    call = _evaluation(spec, layer, lambda: layer.step(token, state))
    return Work(call, layer, state_bytes(state))


def _cached_decoding(spec: CostSpec, layer: ProjectedAttention) -> Work:
    """One query to a cache of the keys and values of the prompt and of the new token."""
    token = torch.randn(spec.batch, 1, spec.dim, device=spec.device)
    dtype = torch.bfloat16 if spec.precision == "bf16" else torch.float32
    shape = spec.batch, spec.heads, spec.length + 1, spec.dim // spec.heads
    keys, values = (torch.randn(shape, device=spec.device, dtype=dtype) for _ in range(2))

    def heads(projected: Float[Tensor, "b 1 d"]) -> Float[Tensor, "b h 1 e"]:
        return projected.unflatten(-1, (spec.heads, -1)).transpose(1, 2)

    def forward() -> None:
        key, value = layer.context(token).chunk(2, dim=-1)
        keys[:, :, -1:], values[:, :, -1:] = heads(key), heads(value)
        attended = layer.attend(heads(layer.query(token)), keys, values, None)
        layer.out(attended.transpose(1, 2).flatten(-2))

    return Work(_evaluation(spec, layer, forward), layer, state_bytes((keys, values)))
