"""`harness cost`: measure time and memory against the number of tokens."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from harness import arguments
from harness.cli.files import within, write_pages
from harness.cli.process import Answer
from harness.stores import with_warnings
from zoo.registry import UserError

if TYPE_CHECKING:
    from harness.costs.plan import CostRequest
    from harness.records.cost import CostRecord, CostSpec

LONGEST = 2**24
"""The most tokens of a sample, and the largest width."""

EXAMPLE = "256:16384 or 1000,2k"

Size = Annotated[int, {"min": 1, "max": LONGEST}]


@dataclass(frozen=True, kw_only=True)
class CostOptions(arguments.Stored, arguments.Machine):
    """The options of `harness cost`.

    Attributes:
        attention: A, MODULE:CLASS, or A,B,...; repeatable; without it, --rerun repeats what the
            store holds.
        lengths: FIRST:LAST by doubling, or a list: 256:16k or 1000,2k.
        pass_: forward, train, prefill, decode; separated by commas.
        level: layer, or step for a whole model.
        batch: Samples, or tokens=K for K tokens in all.
        dim: Model width.
        heads: Attention heads.
        causal: Causal layers.
        set_: NAME.OPTION=VALUE; NAME is a variant, or model; repeatable.
        precision: auto, bf16 or fp32; auto is fp32 on a CPU and bf16 on CUDA.
        seconds: Seconds of sampling for a measurement, about.
        timeout: Seconds of a measurement, at most.
        rerun: Repeat finished measurements.
        keep_outdated: Use measurements of earlier code as they are; by default they are repeated.
    """

    attention: list[str] | None = None
    lengths: str = "256:4096"
    pass_: str = "train"
    level: str = "layer"
    batch: str = "1"
    dim: Size = 64
    heads: Size = 2
    causal: bool = False
    set_: list[str] | None = None
    seconds: Annotated[float, {"min": 0}] = 3.0
    # A larger number exceeds the largest timeout of the operating system.
    timeout: Annotated[float, {"min": 1, "max": 10**6}] = 600.0
    rerun: bool = False
    keep_outdated: bool = False

    def request(self) -> "CostRequest":
        """The requested sweep."""
        from harness.costs.plan import CostRequest, resolved

        return resolved(CostRequest(
            attentions=arguments.attentions_in(self.attention or []),
            lengths=lengths_in(self.lengths), operations=arguments.names_in([self.pass_]),
            level=self.level, batching=self.batch, dim=self.dim, heads=self.heads,
            causal=self.causal, precision=self.precision, device=self.device,
            settings=arguments.settings_of(self.set_),
        ))  # fmt: skip


def cost(options: CostOptions) -> Answer:
    """Measure time and memory against the number of tokens, compared with the fastest softmax.

    Each is measured in a separate process. Where a length fails, longer ones are skipped.
    Exit 1 if a process crashed or failed; too little memory or time is a result.
    """
    from harness.costs.plan import measurements
    from harness.costs.sweep import measure_all
    from harness.interrupts import continued
    from harness.records import frame
    from harness.records.store import CostStore
    from reports import cost as costs

    store, request = options.store, None
    specs = _stored(options)
    if options.attention:
        request = options.request()
        specs = measurements(request)
    with continued(by_same_command=not options.rerun):
        records = measure_all(
            specs, store, seconds=options.seconds, timeout=options.timeout, rerun=options.rerun,
            keep_outdated=options.keep_outdated, show=show,
        )  # fmt: skip
    every = with_warnings(CostStore.within(store).read())[0]
    files = write_pages(within(store, costs.files(frame.of_costs(every))))
    measured, code = frame.of_costs(records), exit_code(records)
    if options.as_json:
        return Answer({"rows": costs.lines(measured), "files": files}, code)
    texts = ["", costs.terminal(measured)]
    if request and options.precision == "auto":
        kind = {"cpu": "a CPU", "cuda": "CUDA"}[request.device]
        texts.append(f"Precision: {request.precision}, as auto is on {kind}; see --precision.")
    if request and (text := _of_suite(request)):
        texts.append(text)
    return Answer("\n".join(texts), code)


def _stored(options: CostOptions) -> "list[CostSpec]":
    """The measurements of this machine that the store holds, where no variant is named."""
    from harness.environment import describe, pick_device
    from harness.records.store import CostStore

    if options.attention:
        return []
    here = describe(pick_device(options.device))
    specs = [record.spec for record in with_warnings(CostStore.within(options.store).read())[0]]
    specs = [s for s in specs if (s.machine, s.threads) == (here.device, here.threads)]
    if not options.rerun or not specs:
        raise UserError(
            "no --attention is given; give for example --attention primal, or --rerun to repeat "
            f"the measurements of this machine; {options.store} has {len(specs)} of them"
        )
    return [spec for spec in specs if not spec.superseded]


def _of_suite(request: "CostRequest") -> str:
    """The options that measure the costs of the matrix of `laptop`; empty where they are set."""
    from harness.records.suites import find

    suite = find("laptop")
    plan, ours = suite.cost, vars(request) | {"batch": request.batching}
    shared = plan.model_dump(include={"precision", "dim", "heads"})
    texts: list[str] = []
    compared = request.level == "layer" and request.device == "cpu"
    for operation in plan.passes if compared else ():
        wanted = {"batch": plan.batch[operation], **shared}
        flags = [f"--{name} {v}" for name, v in wanted.items() if v != ours[name]]
        if operation in request.operations and flags:
            texts.append(" ".join([f"--pass {operation}", *flags]))
    return f"To compare with the matrix of {suite.key}: {'; '.join(texts)}" if texts else ""


def show(record: "CostRecord", new: bool) -> None:
    """Print a measurement as it ends."""
    from harness.records.frame import of_costs
    from reports.cost import text_of, with_ratio

    (line,) = of_costs([record]).to_dict("records")
    text = text_of(line, lambda m: f"{with_ratio(1000 * m['seconds'], m['ratio'])} ms")
    note, spec = "" if new else "  (already present)", record.spec
    typer.echo(f"{line['label']}, {spec.operation}, {spec.length:,} tokens: {text}{note}")


def exit_code(records: "Iterable[CostRecord]") -> int:
    """1 if a process crashed or failed; too little memory or time is a result."""
    return int(any(record.status in ("crashed", "failed") for record in records))


def lengths_in(text: str) -> list[int]:
    """Read `FIRST:LAST`, by doubling, or lengths separated by commas."""
    span = re.fullmatch(r"(\w+):(\w+)", text)
    listed = ",".join(span.groups()) if span else text
    numbers = arguments.integers_in("lengths", listed, range(1, LONGEST + 1), EXAMPLE)
    if span is None:
        return numbers
    first, last = numbers[0], numbers[-1]
    if last < first:
        raise UserError(f"lengths {text!r} end before they begin; give for example {EXAMPLE}")
    return [first << n for n in range((last // first).bit_length())]
