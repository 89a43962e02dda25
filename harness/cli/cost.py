"""`harness cost`: measure time and memory against the number of tokens."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from harness.cli import arguments
from harness.cli.process import Answer
from harness.cli.report import with_warnings, within, write_pages
from zoo.registry import UserError, unknown

if TYPE_CHECKING:
    from harness.records.cost import CostRecord, CostSpec

Choice = TypeVar("Choice", bound=str)

LONGEST = 2**24
"""The most tokens of a sample, and the largest width."""

EXAMPLE = "256:16384 or 1000,2k"


def cost(
    attention: Annotated[
        list[str], typer.Option("--attention", "-a", help="A, or A,B,...; repeatable.")
    ],
    lengths: Annotated[
        str, typer.Option(help="FIRST:LAST by doubling, or a list: 256:16k or 1000,2k.")
    ] = "256:4096",
    pass_: Annotated[
        str, typer.Option("--pass", help="forward, train, prefill, decode; separated by commas.")
    ] = "train",
    level: Annotated[str, typer.Option(help="layer, or step for a whole model.")] = "layer",
    batch: Annotated[str, typer.Option(help="Samples, or tokens=K for K tokens in all.")] = "1",
    dim: Annotated[int, typer.Option(min=1, max=LONGEST, help="Model width.")] = 64,
    heads: Annotated[int, typer.Option(min=1, max=LONGEST, help="Attention heads.")] = 2,
    causal: Annotated[bool, typer.Option("--causal", help="Causal layers.")] = False,
    device: arguments.DeviceOption = "auto",
    precision: arguments.PrecisionOption = "auto",
    set_: arguments.SetOption = None,
    store: arguments.StoreOption = Path("runs"),
    seconds: arguments.SecondsOption = 3.0,
    timeout: arguments.TimeoutOption = 600.0,
    rerun: Annotated[bool, typer.Option("--rerun", help="Measure finished cells again.")] = False,
    as_json: arguments.JsonOption = False,
) -> Answer:
    """Measure time and memory against the number of tokens, compared with the fastest softmax.

    Every cell is measured in a process of its own. Where a length fails, longer ones are skipped.
    Exit 1 if a cell crashed or failed; too little memory or time is a result.
    """
    from harness import environment
    from harness.cost.plan import CostRequest, cells
    from harness.records.cost import LEVELS, PASSES
    from harness.records.store import CostStore
    from reports import pages, tables

    chosen = environment.pick_device(device)
    request = CostRequest(
        attentions=arguments.names_in(attention),
        lengths=lengths_in(lengths),
        operations=[_choice("pass", name, PASSES) for name in arguments.names_in([pass_])],
        level=_choice("level", level, LEVELS),
        batching=batch,
        dim=dim,
        heads=heads,
        causal=causal,
        precision=environment.pick_precision(precision, chosen),
        device=cast(Any, chosen.type),
        settings=arguments.settings_of(set_),
    )
    records = measure_all(cells(request), store, seconds, timeout, rerun)
    costs = with_warnings(CostStore.within(store).read())[0]
    files = write_pages(within(store, pages.cost_files(costs)))
    failed = any(record.status in ("crashed", "failed") for record in records)
    if as_json:
        return Answer({"rows": tables.cost_rows(records), "files": files}, int(failed))
    return Answer(f"\n{tables.cost_summary(records)}", int(failed))


def measure_all(
    specs: "Sequence[CostSpec]",
    store: Path,
    seconds: float,
    timeout: float,
    rerun: bool,
) -> "list[CostRecord]":
    """Measure the cells that have no record, and print each as it ends.

    Args:
        specs: the cells.
        store: folder of the store.
        seconds: of sampling for a cell, about.
        timeout: seconds of a cell, at most.
        rerun: measure finished cells again.

    Raises:
        UserError: the store cannot be written.
    """
    from functools import partial

    import torch

    from harness.cost.limits import measure_limits
    from harness.cost.process import measure_in_process
    from harness.cost.sweep import sweep
    from harness.records.store import CostStore

    folder = CostStore.within(store)
    folder.require_writable()
    limits = measure_limits(torch.device(specs[0].device), specs[0].precision)
    measure = partial(measure_in_process, limits=limits, budget=seconds, timeout=timeout)
    records = []
    for record, new in sweep(specs, folder, measure, rerun=rerun):
        typer.echo(_line(record) + ("" if new else "  (already present)"))
        records.append(record)
    return records


def lengths_in(text: str) -> list[int]:
    """Read `FIRST:LAST`, by doubling, or lengths separated by commas.

    Raises:
        UserError: the text has neither form, or a length is out of range.
    """
    span = re.fullmatch(r"(\w+):(\w+)", text)
    parts = ",".join(span.groups()) if span else text
    given = arguments.integers_in("lengths", parts, range(1, LONGEST + 1), EXAMPLE)
    if span is None:
        return given
    first, last = given[0], given[-1]
    if last < first:
        raise UserError(f"lengths {text!r} end before they begin; give for example {EXAMPLE}")
    lengths = [first]
    while 2 * lengths[-1] <= last:
        lengths.append(2 * lengths[-1])
    return lengths


def _choice(what: str, name: str, choices: tuple[Choice, ...]) -> Choice:
    for choice in choices:
        if choice == name:
            return choice
    raise UserError(unknown(what, name, choices))


def _line(record: "CostRecord") -> str:
    """One cell, as it ends."""
    from reports.tables.cost import cell_text, time_text

    spec = record.spec
    result = cell_text(record, lambda cell: f"{time_text(cell)} ms")
    return f"{spec.attention}, {spec.operation}, {spec.length:,} tokens: {result}"
