"""`harness cost`: measure time and memory against the number of tokens."""

from pathlib import Path
from typing import Annotated

from harness import arguments
from harness.cli.process import Answer

# A larger number exceeds the largest timeout of the operating system.
Timeout = Annotated[float, {"min": 1, "max": 10**6}]

Size = Annotated[int, {"min": 1, "max": arguments.LONGEST}]


def cost(
    attention: list[str] | None = None, lengths: str = "256:4096", pass_: str = "train",
    level: str = "layer", batch: str = "1", dim: Size = 64, heads: Size = 2, causal: bool = False,
    set_: list[str] | None = None, precision: str = "auto",
    seconds: Annotated[float, {"min": 0}] = 3.0, timeout: Timeout = 600.0, rerun: bool = False,
    keep_outdated: bool = False, store: Path = Path("runs"), device: str = "auto",
    as_json: bool = False,
) -> Answer:  # fmt: skip
    """Measure time and memory against the number of tokens, compared with the fastest softmax.

    Each is measured in a separate process. Where a length fails, longer ones are skipped.
    Exit 1 if a process crashed or failed; too little memory or time is a result.

    Args:
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
        store: Folder of records, a JSON file a run.
        device: auto, cpu or cuda.
        as_json: Print one JSON document; progress goes to stderr.
    """
    from harness import api
    from harness.cli.progress import show_cost
    from reports import cost as costs

    measured = api.cost(
        arguments.attentions_in(attention or []), arguments.lengths_in(lengths),
        passes=arguments.names_in([pass_]), level=level, batch=batch,
        dim=dim, heads=heads, causal=causal, precision=precision,
        device=device, store=store, seconds=seconds,
        timeout=timeout, rerun=rerun, keep_outdated=keep_outdated,
        show=show_cost, settings=arguments.settings_of(set_),
    )  # fmt: skip
    files, rows = api.write_costs(store), costs.lines(measured)
    code = int(not costs.is_complete(measured))
    if as_json:
        return Answer({"rows": rows, "files": files}, code, files)
    texts = ["", costs.terminal(measured)]
    if attention and precision == "auto":
        used, kind = measured[["precision", "device"]].iloc[0]
        where = {"cpu": "a CPU", "cuda": "CUDA"}[kind]
        texts.append(f"Precision: {used}, as auto is on {where}; see --precision.")
    if attention and (text := costs.hint(measured)):
        texts.append(text)
    return Answer("\n".join(texts), code, files)
