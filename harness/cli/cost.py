"""`harness cost`: measure time and memory against the number of tokens."""

from dataclasses import dataclass
from typing import Annotated

from harness import arguments
from harness.cli.process import Answer

Size = Annotated[int, {"min": 1, "max": arguments.LONGEST}]


@dataclass(frozen=True, kw_only=True)
class CostOptions(arguments.Shared):
    """The options of `harness cost`.

    Attributes:
        attention: A, MODULE:CLASS, or A,B,...; repeatable; without it, --rerun repeats what the
            store holds.
        lengths: FIRST:LAST by doubling, or a list: 256:16k or 1000,2k.
        pass_: forward, train, packed, prefill, decode; separated by commas. packed is train on
            rows of sequences of 1/2, 1/4, ... of the tokens.
        level: layer, or step for a whole model.
        batch: Samples, or tokens=K for K tokens in all.
        dim: Model width.
        heads: Attention heads.
        causal: Causal layers.
        set_: NAME.OPTION=VALUE; NAME is a variant, or model; repeatable.
        seconds: Seconds of sampling for a measurement, about.
        timeout: Seconds of a measurement, at most.
    """

    lengths: str = "256:4096"
    pass_: str = "train"
    level: str = "layer"
    batch: str = "1"
    dim: Size = 64
    heads: Size = 2
    causal: bool = False
    seconds: Annotated[float, {"min": 0}] = 3.0
    # The operating system has a largest timeout.
    timeout: Annotated[float, {"min": 1, "max": 10**6}] = 600.0


def cost(options: CostOptions) -> Answer:
    """Measure time and memory against length.

    They are compared with the fastest softmax.

    Each is measured in a separate process. Where a length fails, longer ones are skipped.
    Exit 1 if a process crashed or failed; too little memory or time is a result.
    """
    from harness import api
    from harness.records.cost import FAILURES
    from reports import cost as costs
    from reports.store import write_costs

    measured = api.cost(
        arguments.attentions_in(options.attention or []), arguments.lengths_in(options.lengths),
        passes=arguments.names_in([options.pass_]), level=options.level, batch=options.batch,
        dim=options.dim, heads=options.heads, causal=options.causal, precision=options.precision,
        device=options.device, settings=arguments.settings_of(options.set_), store=options.store,
        rerun=options.rerun, keep_outdated=options.keep_outdated, seconds=options.seconds,
        timeout=options.timeout,
    )  # fmt: skip
    files, rows = write_costs(options.store), costs.lines(measured)
    texts = ["", costs.terminal(measured)]
    if options.attention and options.precision == "auto":
        used, kind = measured[["precision", "device"]].iloc[0]
        where = {"cpu": "a CPU", "cuda": "CUDA"}[kind]
        texts.append(f"Precision: {used}, as auto is on {where}; see --precision.")
    if options.attention and (text := costs.hint(measured)):
        texts.append(text)
    code = int(measured["status"].isin(FAILURES).any())  # Too little memory or time is a result
    return Answer("\n".join(texts), {"rows": rows, "files": files}, code, files)
