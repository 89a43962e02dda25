"""The measurements of a cost sweep and their reference softmax; see docs/decisions/costs.md."""

import warnings
from collections.abc import Mapping, Sequence
from itertools import chain, product
from typing import Any

from harness import recipes
from harness.data import data_of
from harness.environment import describe, memory_of, pick_device, pick_precision
from harness.questions import NONE, Settings, require_used
from harness.records.cost import (
    LEVELS,
    PASSES,
    REFERENCE,
    REVISIONS,
    SDPA,
    CostSpec,
    batching_of,
    step_recipe,
)
from harness.records.fields import require_known
from harness.records.spec import Encoder, RunSpec
from harness.records.toml_files import validated
from zoo.composition import Composition
from zoo.contract import Size, Unsupported, decoding
from zoo.registry import UserError, changed
from zoo.variants import variants

NAIVE = "naive"  # The formula of softmax
# Exact implementations of softmax.
BACKENDS: Mapping[str, tuple[str, ...]] = {"cpu": (SDPA, NAIVE), "cuda": (SDPA, NAIVE, "xformers")}
WEIGHTS = 3  # Tensors of the size of the weights of all layers in the memory of the formula, about
SHARE = 0.25  # Share of the machine's memory that these may take, at most
RECIPE = "laptop"  # The recipe of the model of level `step`
MODEL = "model"  # The owner of its settings
SETTINGS = ("depth", "feed_forward", "head", "dropout", "recompute")
LARGEST = 2**31  # The most samples of a call, or tokens in all


def measurements(
    attentions: Sequence[str], lengths: Sequence[int], operations: Sequence[str], *,
    level: str = "layer", batching: str = "1", dim: int = 64, heads: int = 2, causal: bool = False,
    precision: str = "auto", device: str = "auto", settings: Settings = NONE,
    references: bool = True,
) -> list[CostSpec]:  # fmt: skip
    # Prefill, decoding, and variants without a bidirectional form are always causal.
    require_known("pass", operations, PASSES)
    require_known("level", [level], LEVELS)
    kind = pick_device(device)
    # Rejects widths that heads do not divide.
    Size(dim=dim, heads=heads, max_len=max(lengths), causal=False, dropout=0.0)
    _check(attentions, operations, level, settings)
    model = None
    if level == "step":
        require_known(f"option of {MODEL}", own := settings.get(MODEL, {}), SETTINGS)
        sizes = {"dim": dim, "heads": heads, "feed_forward": 2 * dim, "positions": "learned"}
        fields = {**recipes.find(RECIPE).of_task("scaling").model, **sizes, **own}
        model = validated(Encoder, fields, f"{MODEL}.", what="option")
    shared = {
        "level": level, "batching": batching, "dim": dim, "heads": heads, "model": model,
        "precision": pick_precision(precision, kind), "device": kind,
    }  # fmt: skip
    named = [(name, settings) for name in attentions]
    backends = [(REFERENCE, {REFERENCE: {"backend": each}}) for each in (SDPA, NAIVE)]
    specs: list[CostSpec] = []
    skipped: dict[str, None] = {}
    for operation, (name, of) in product(operations, named + backends * references):
        row = [_spec(name, of, settings, operation, n, causal, shared) for n in sorted(lengths)]
        try:
            for part in row[0].options:
                variants.find(part).require_form(causal=row[0].causal)
                if operation in ("prefill", "decode") and not variants.find(part).decodes():
                    raise Unsupported(f"{part} does not decode; variants that do: {decoding()}")
            specs += row
        except Unsupported as error:
            skipped[f"{name}, {operation}: {error}"] = None
    if len(skipped) == len(named) * len(operations):
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


def _check(
    attentions: Sequence[str], operations: Sequence[str], level: str, settings: Settings
) -> None:
    if level == "step" and {"decode", "packed", "prefill"} & {*operations}:
        raise UserError("a model has no pass decode, packed or prefill; give --level layer")
    names = {attention: Composition.parse(attention).names for attention in attentions}
    for attention in attentions if level == "layer" else ():
        if len(names[attention]) > 1:
            raise UserError(f"{attention!r} has two variants, a layer has one; give --level step")
    owners = {*chain.from_iterable(names.values()), *([MODEL] if level == "step" else [])}
    require_used(settings, owners)


def _spec(
    attention: str, options: Settings, settings: Settings, operation: Any, length: int,
    causal: bool, shared: Mapping[str, Any],
) -> CostSpec:  # fmt: skip
    composition, environment = Composition.parse(attention), describe(shared["device"])
    kinds = [variants.find(name) for name in composition.names]
    spec = CostSpec(
        attention=attention, options=composition.changed(options),
        overrides=composition.overrides(settings, {}), operation=operation, length=length,
        batch=batch_of(shared["batching"], length), **shared,
        causal=causal or operation in ("prefill", "decode")
        or not all(kind.traits.bidirectional for kind in kinds),
        machine=environment.device, threads=environment.threads,
        revision=REVISIONS.get(operation, 1),
    )  # fmt: skip
    reference = reference_of(spec)
    # On a CPU `auto` is the faster of two rows that every sweep has.
    auto = spec.options == {REFERENCE: {}} and spec.device == "cpu"
    is_reference = spec.model_copy(update={"overrides": {}}) == reference
    return reference if auto or is_reference else spec


def reference_of(spec: CostSpec, backend: str = SDPA) -> CostSpec:
    options = {REFERENCE: changed(variants.find(REFERENCE), {"backend": backend})}
    return spec.model_copy(update={"attention": REFERENCE, "options": options, "overrides": {}})


def candidates(spec: CostSpec) -> list[str]:
    # The formula only if its weights fit; the compiler has a kernel of SDPA alone.
    weights = spec.batch * spec.heads * spec.length * (spec.model.depth if spec.model else 1)
    weights *= 1 if spec.operation == "decode" else spec.length
    needed = WEIGHTS * weights * (2 if spec.precision == "bf16" else 4)
    if spec.train and spec.train.compiled:
        return [SDPA]
    fits = needed <= SHARE * memory_of(spec.device)
    return [name for name in BACKENDS[spec.device] if name != NAIVE or fits]
