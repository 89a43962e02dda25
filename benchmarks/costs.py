"""Claims that are ratios of two costs, evaluated over the records of `harness cost`.

The cells `of` and `over` name costs as rows are called, `primal[rank=30]`: of layers in the shape
of the section, or of training steps, with the changes that a word of `CHANGES` behind them makes.
A cost that has no record is measured.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.claims import Result, Setup
from harness.costs.plan import CostRequest, measurements, of_run, reference_of
from harness.costs.sweep import measure_all
from harness.environment import describe
from harness.questions import Fixed, question_of, spec_of
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Quartiles
from zoo.contract import Unsupported
from zoo.variants import variants

TWINS = ("LocalAttention", "LinearAttention", "Linformer", "MultiheadAttention")
"""The layers of `benchmarks.twins`."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "": {}, "fp32": {}, "bf16": {"precision": "bf16"},
    "decoding": {"operations": ["decode"], "batching": "1"},
    "short": {"batching": "1"}, "long": {"batching": "1", "lengths": [65_536]},
    "eager": {"compiled": False}, "no dropout": {"model": {"dropout": 0.0}},
}  # fmt: skip

GENERATED = ("listops", "pathfinder")
FEW = {"train": 640, "dev": 32, "test": 32}
"""Examples of a generated task: a step does not depend on their number."""


def of_layers(setup: Setup, **shape: Any) -> Iterator[Result]:
    """Claims about layers of width 64 with two heads, forward and backward."""
    usual = {"operations": ["train"], "precision": "fp32", "lengths": [4096], "causal": False}
    for name in TWINS:
        variants.name_class(f"benchmarks.twins:{name}")

    def layer(name: str, settings: dict[str, Any], change: Mapping[str, Any]) -> CostSpec:
        fields: dict[str, Any] = {**usual, **shape, **change}
        fields["lengths"] = [length // setup.size(1, 64) for length in fields["lengths"]]
        request = CostRequest(attentions=[name], settings=settings, device=setup.kind, **fields)
        return measurements(request)[0]

    return _evaluated(setup, layer)


def of_steps(setup: Setup) -> Iterator[Result]:
    """Claims about training steps of the published run of ListOps."""
    return _evaluated(setup, lambda name, settings, change: step_of(
        setup, name, "listops", "paper", **settings, **change
    ))  # fmt: skip


def step_of(
    setup: Setup, attention: str, task: str, recipe: str, *, compiled: bool | None = None,
    **settings: Any,
) -> CostSpec:  # fmt: skip
    """The step of a run with options by owner; of recipe `smoke` where sizes are the smallest."""
    settings = {**({} if setup.tiny or task not in GENERATED else {task: FEW}), **settings}
    fixed, here = Fixed(device=setup.kind, compiled=compiled), describe(setup.kind)
    question = question_of(task, "smoke" if setup.tiny else recipe, settings, fixed)
    run = spec_of(question, attention, settings, device=setup.kind)
    return of_run(run, here.device, here.threads)[0]


def setting_of(spec: CostSpec) -> str:
    """What is measured in words, without the variant."""
    task, form = f"{spec.task.key}: " if spec.task else "", ", causal" * spec.causal
    shape = f"B={spec.batch} N={spec.length} D={spec.dim} H={spec.heads}{form}"
    return f"{task}{shape}, {spec.precision}, {spec.operation}"


def _evaluated(setup: Setup, named: Callable[..., CostSpec]) -> Iterator[Result]:
    """The claims of a section; `named` takes a variant, its options and a change."""
    for claim in setup.claims:
        try:
            specs = [named(*_read(text)) for text in (claim.of, claim.over)]
        except Unsupported as error:
            yield Result(claim.name, claim.of, reason=str(error))
            continue
        made = measure_all(specs, setup.out, seconds=0.0 if setup.tiny else 3.0)
        of, over = sorted(made, key=lambda cost: cost.spec != specs[0])
        reason = of.reason or over.reason
        yield Result(claim.name, claim.of, reason=reason) if reason else ratio(claim, of, over)


def _read(text: str) -> tuple[str, dict[str, dict[str, str]], Mapping[str, Any]]:
    """The variant, its options and the change of a cell."""
    label, _, word = text.partition(", ")
    name, _, options = label.rstrip("]").partition("[")
    settings = dict(option.split("=") for option in options.split(",") if option)
    return name, {name: settings} if settings else {}, CHANGES[word]


def ratio(claim: Any, of: CostRecord, over: CostRecord) -> Result:
    """The ratio of two costs that were measured.

    Times that were taken alternately with those of the same softmax are compared through it.
    """
    setting, a, b = setting_of(of.spec), of.measured, over.measured
    assert a and b
    unit, values = "ms", [cost.seconds / 1e-3 for cost in (a, b)]
    if claim.quantity == "memory":
        unit, values = "MiB", [Quartiles.of([cost.memory_bytes / 2**20]) for cost in (a, b)]
    figures = {f"{t} ({unit})": v for t, v in zip((claim.of, claim.over), values, strict=True)}
    same = reference_of(of.spec, a.reference) == reference_of(over.spec, b.reference)
    if unit == "ms" and same and a.ratio and b.ratio:
        values = [a.ratio, b.ratio]
        setting += f"; each alternately with softmax, {a.reference}"
    tokens = of.spec.length / over.spec.length
    return Result(claim.name, setting, values[0] / values[1] / tokens, figures)
