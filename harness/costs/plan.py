"""The measurements of a cost sweep and their reference softmax; see docs/decisions/costs.md."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from harness import recipes
from harness.costs.work import require_supported
from harness.data import data_of
from harness.environment import describe, memory_of, pick_device, pick_precision
from harness.records.cost import LEVELS, PASSES, REVISIONS, CostSpec, batching_of, step_recipe
from harness.records.fields import require_known
from harness.records.models import Encoder
from harness.records.spec import RunSpec
from harness.records.toml_files import validated
from zoo.composition import Composition
from zoo.contract import Size, Unsupported
from zoo.registry import UserError, Value, changed
from zoo.variants import variants

REFERENCE = "softmax"  # The variant that every cost is compared with

# Its backends: the fused kernels, whose memory is compared with; the formula.
SDPA, NAIVE = "sdpa", "naive"

# Its exact implementations by kind of device.
BACKENDS: Mapping[str, tuple[str, ...]] = {"cpu": (SDPA, NAIVE), "cuda": (SDPA, NAIVE, "xformers")}

# Tensors of the size of the weights of all layers that the formula has in memory, about.
WEIGHTS = 3

SHARE = 0.25  # Share of the memory of the machine that these may take, at most

Options = dict[str, dict[str, Value]]

RECIPE = "laptop"  # The recipe of the model, where the level is `step`
MODEL = "model"  # The owner of the settings of that model

SETTINGS = ("depth", "feed_forward", "head", "dropout", "recompute")

LARGEST = 2**31  # The most samples of a call, or tokens of all of them


@dataclass(frozen=True, kw_only=True)
class CostRequest:
    """A sweep before defaults are filled in; the fields are those of `harness.cost`.

    Attributes:
        causal: prefill, decoding, and variants that are causal only, always are.
        settings: options by variant; by `model` for the model, where `level` is `step`.
        references: whether SDPA softmax and softmax by its formula are measured as rows, too.
    """

    attentions: Sequence[str]
    lengths: Sequence[int]
    operations: Sequence[str]
    level: str = "layer"
    batching: str = "1"
    dim: int = 64
    heads: int = 2
    causal: bool = False
    precision: str = "auto"
    device: str = "auto"
    settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    references: bool = True


def measurements(request: CostRequest) -> list[CostSpec]:
    # A cost contains the ratio to softmax without references, too.
    require_known("pass", request.operations, PASSES)
    require_known("level", [request.level], LEVELS)
    device = pick_device(request.device)
    request = replace(request, device=device, precision=pick_precision(request.precision, device))
    _check(request)
    named = [(name, request.settings) for name in request.attentions]
    kinds = (SDPA, NAIVE) if request.references else ()
    references = [(REFERENCE, {REFERENCE: {"backend": kind}}) for kind in kinds]
    specs: list[CostSpec] = []
    skipped: dict[str, None] = {}
    for operation, (attention, of) in product(request.operations, [*named, *references]):
        lengths = sorted(request.lengths)
        row = [_spec(request, attention, of, operation, length) for length in lengths]
        try:
            require_supported(row[0])
            specs += row
        except Unsupported as error:
            skipped[f"{attention}, {operation}: {error}"] = None
    if len(skipped) == len(named) * len(request.operations):
        raise Unsupported(next(iter(skipped)))
    for reason in skipped:
        warnings.warn(f"skipped: {reason}", stacklevel=2)
    return specs


def of_run(spec: RunSpec, machine: str, threads: int) -> list[CostSpec]:
    task, model = data_of(spec.question.task).task, spec.model
    # All sequences of an example pass through the model.
    batch = spec.train.batch * task.sequences
    return [
        CostSpec(
            attention=spec.attention, options=spec.options, level="step", operation=operation,
            length=task.length("train"), batch=batch, batching=str(batch), dim=model.dim,
            heads=model.heads, causal=task.causal, model=model, precision=spec.train.precision,
            device=spec.device, machine=machine, threads=threads, train=step_recipe(spec.train),
            task=spec.question.task,
        )
        for operation in ("train", "forward")
    ]  # fmt: skip


def batch_of(batching: str, length: int) -> int:
    try:
        name, number = batching_of(batching)
        if not 1 <= number <= LARGEST:
            raise ValueError
    except ValueError:
        raise UserError(
            f"--batch {batching!r} is neither an integer from 1 to {LARGEST} nor tokens=K; give "
            "for example 8 or tokens=16384"
        ) from None
    if name == "batch":
        return number
    if number < length:
        raise UserError(
            f"--batch {batching} is less than one sample of {length} tokens; give tokens={length} "
            "or more, or shorter --lengths"
        )
    return number // length


def _check(request: CostRequest) -> None:
    # Rejects a width that the heads do not divide.
    Size(dim=request.dim, heads=request.heads, max_len=max(request.lengths), causal=False,
         dropout=0.0)  # fmt: skip
    if request.level == "step" and {"decode", "prefill"} & {*request.operations}:
        raise UserError("a model has no pass decode or prefill; give --level layer")
    for attention in request.attentions:
        if request.level == "layer" and len(Composition.parse(attention).names) > 1:
            raise UserError(f"{attention!r} has two variants, a layer has one; give --level step")
    owners = {name for text in request.attentions for name in Composition.parse(text).names}
    owners |= {MODEL} if request.level == "step" else set()
    for owner in request.settings:
        if owner not in owners:
            raise UserError(
                f"--set {owner}: no row uses {owner!r}; give one of {', '.join(sorted(owners))}"
            )


def _spec(
    request: CostRequest, attention: str, settings: Mapping[str, Mapping[str, Value]],
    operation: Any, length: int,
) -> CostSpec:  # fmt: skip
    composition, environment = Composition.parse(attention), describe(request.device)
    kinds = [variants.find(name) for name in composition.names]
    names = ("level", "batching", "dim", "heads", "precision", "device")
    shared: Any = {name: getattr(request, name) for name in names}
    spec = CostSpec(
        attention=attention, options=composition.changed(settings),
        overrides=composition.overrides(request.settings, {}), operation=operation, length=length,
        batch=batch_of(request.batching, length), **shared,
        causal=request.causal or operation in ("prefill", "decode")
        or not all(kind.traits.bidirectional for kind in kinds),
        model=_model(request) if request.level == "step" else None,
        machine=environment.device, threads=environment.threads,
        revision=REVISIONS.get(operation, 1),
    )  # fmt: skip
    reference = reference_of(spec)
    # On a CPU `auto` is the faster of the two rows that every sweep has.
    auto = spec.options == {REFERENCE: {}} and request.device == "cpu"
    is_reference = spec.model_copy(update={"overrides": {}}) == reference
    return reference if auto or is_reference else spec


def _model(request: CostRequest) -> Encoder:
    recipe = recipes.find(RECIPE).of_task("scaling").model
    sizes = {"dim": request.dim, "heads": request.heads, "feed_forward": 2 * request.dim}
    options = request.settings.get(MODEL, {})
    require_known(f"option of {MODEL}", options, SETTINGS)
    values = {**recipe, **sizes, "positions": "learned", **options}
    return validated(Encoder, values, f"{MODEL}.", what="option")


def reference_of(spec: CostSpec, backend: str = SDPA) -> CostSpec:
    options = {REFERENCE: changed(variants.find(REFERENCE), {"backend": backend})}
    return spec.model_copy(update={"attention": REFERENCE, "options": options, "overrides": {}})


def softmax_by(backend: str, options: Options) -> Options:
    if "backend" in options.get(REFERENCE, {"backend": ""}):
        return options
    return {**options, REFERENCE: {**options[REFERENCE], "backend": backend}}


def candidates(spec: CostSpec) -> list[str]:
    # The formula only where its weights fit, a compiled model with SDPA.
    weights = spec.batch * spec.heads * spec.length * (spec.model.depth if spec.model else 1)
    weights *= 1 if spec.operation == "decode" else spec.length
    needed = WEIGHTS * weights * (2 if spec.precision == "bf16" else 4)
    if spec.train and spec.train.compiled:
        # Each would be compiled; the compiler has a kernel for SDPA alone.
        return [SDPA]
    fits = needed <= SHARE * memory_of(spec.device)
    return [name for name in BACKENDS[spec.device] if name != NAIVE or fits]
