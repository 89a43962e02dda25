"""Claims that are ratios of two costs of layers, evaluated over the records of `harness cost`.

The cells `of` and `over` name layers as rows are called, `primal[rank=30]`, in the shape of the
section, with the changes that a word of `CHANGES` behind them makes. A cost that has no record is
measured. Times are compared through the softmax that each was timed with alternately.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks.claims import Claim
from benchmarks.runner import MIB, Runner, per
from harness.costs.plan import CostRequest, measurements
from harness.costs.sweep import measure_all
from harness.records.cost import CostRecord, CostSpec
from harness.records.fields import Quartiles
from zoo.contract import Unsupported
from zoo.variants import variants

LENGTH = 4096

TWINS = ("LocalAttention", "LinearAttention", "Linformer", "MultiheadAttention")
"""The layers of `benchmarks.twins`."""

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "": {}, "fp32": {}, "bf16": {"precision": "bf16"},
    "decoding": {"operations": ["decode"], "batching": "1"},
    "short": {"batching": "1"}, "long": {"batching": "1", "lengths": [16 * LENGTH]},
}  # fmt: skip


def measure_primal(runner: Runner) -> None:
    """The Primal-Attention layer, forward and backward: B=8 N=4096 D=64 H=2 s=30.

    Compared with its literal form, the published order of computation with all scores in memory,
    and with `none`, which projects tokens and does not mix them.
    """
    evaluate(runner, batching="8")


def measure_memory(runner: Runner) -> None:
    """Every variant as a layer, forward and backward: B=4 N=4096 D=64 H=2, fp32.

    SDPA computes its weights again in the backward pass, so its memory is linear in N. Some
    variants compute a batch in parts, so that four samples take less than four times the memory of
    one, which [the page of costs](../results/cost.md) has.
    """
    # Bounds of times are 1.1 times what was measured (AMD EPYC with AVX512, two threads) before
    # these variants computed again in the backward pass what they do not store, so that less memory
    # does not cost time; of gated-linear less.
    evaluate(runner, batching="4")


def measure_recurrences(runner: Runner) -> None:
    """The delta family, causal: forward and backward of 16,384 tokens, and decoding of one token.

    A layer of D=64 and H=2 at N=4096, and at 16 times that length in one sample.
    """
    evaluate(runner, batching="4", causal=True)


def measure_twins(runner: Runner) -> None:
    """Native variants compared with library packages: B=2 N=4096 D=64 H=2, fp32, both passes.

    With these options both compute the same amount. A package without projections gets the ones
    that the native variant has.
    """
    for name in TWINS:
        variants.name_class(f"benchmarks.twins:{name}")
    evaluate(runner, batching="2")


def evaluate(runner: Runner, **shape: Any) -> None:
    """Record the claims of a section about layers of a shape; measure missing costs."""
    specs: dict[str, CostSpec] = {}
    reasons: dict[str, str] = {}
    for claim in runner.claims.values():
        for text in (claim.of, claim.over):
            try:
                specs[text] = spec_of(text, runner, shape)
            except Unsupported as error:
                reasons[text] = str(error)
    wanted = {spec.id: spec for spec in specs.values()}
    costs = {cost.spec.id: cost for cost in measure_all(
        [*wanted.values()], runner.out, seconds=0.0 if runner.tiny else 3.0
    )}  # fmt: skip
    for claim in runner.claims.values():
        texts = claim.of, claim.over
        pair = [costs[specs[text].id] for text in texts if text in specs]
        found = [reasons[text] for text in texts if text in reasons]
        found += [cost.reason for cost in pair if cost.measured is None]
        if found:
            runner.record(claim.name, claim.of, reason=found[0])
        else:
            _record(runner, claim, *pair)


def spec_of(text: str, runner: Runner, shape: Mapping[str, Any]) -> CostSpec:
    """The cost that a cell of the table names.

    Raises:
        Unsupported: its package is missing, or it has no such pass.
    """
    label, _, word = text.partition(", ")
    name, _, options = label.rstrip("]").partition("[")
    settings = dict(option.split("=") for option in options.split(",") if option)
    fields: dict[str, Any] = {
        "lengths": [LENGTH], "operations": ["train"], "causal": False, "precision": "fp32",
        **shape, **CHANGES[word],
    }  # fmt: skip
    if runner.tiny:
        fields["lengths"] = [length // 64 for length in fields["lengths"]]
    settings = {name: settings} if settings else {}
    request = CostRequest(attentions=[name], device=runner.kind, settings=settings, **fields)
    return measurements(request)[0]


def _record(runner: Runner, claim: Claim, of: CostRecord, over: CostRecord) -> None:
    """Record a claim about two costs that were measured."""
    spec, tokens, pair = of.spec, of.spec.length / over.spec.length, []
    for cost in (of, over):
        assert cost.measured
        pair.append(cost.measured)
    lengths = f"{spec.length}" if tokens == 1 else f"{spec.length} and {over.spec.length}"
    setting = (
        f"B={spec.batch} N={lengths} D={spec.dim} H={spec.heads}{', causal' * spec.causal}, "
        f"{spec.precision}, {spec.operation}"
    )
    if claim.quantity == "memory":
        unit, values = "MiB", [Quartiles.of([cost.memory_bytes / MIB]) for cost in pair]
    else:
        unit, values = "ms", [per(cost.seconds, 1e-3) for cost in pair]
    figures = dict(
        zip([f"{text} ({unit})" for text in (claim.of, claim.over)], values, strict=True)
    )
    if unit == "ms" and tokens == 1 and pair[0].ratio and pair[1].ratio:
        values = [pair[0].ratio, pair[1].ratio]
        setting += f"; each alternately with softmax, {pair[0].reference}"
    runner.record(claim.name, setting, per(_divided(*values), tokens), figures)


def _divided(of: Quartiles, over: Quartiles) -> Quartiles:
    """The ratio of medians, with the quartiles that are furthest from it."""
    return Quartiles(q1=of.q1 / over.q3, median=of.median / over.median, q3=of.q3 / over.q1)
