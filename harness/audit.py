"""The cells of a locality audit: one task, seen through windows and in shuffled blocks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from harness.budgets import Request, plan
from harness.environment import pick_precision
from harness.run import find_task
from harness.spec import RunSpec
from zoo.registry import Refused, Value


def cells(
    task: str,
    windows: Sequence[int],
    budget: str,
    seed: int,
    device: torch.device,
    settings: Mapping[str, Mapping[str, Value]],
) -> Iterator[RunSpec]:
    """The runs behind the curves of a task: `reports.locality` says what they mean.

    A task that asks at tokens is not shuffled: what it asks for would no longer be where it asks.

    Args:
        task: name of a task.
        windows: tokens to each side that a layer sees, and tokens of a shuffled block.
        budget: name of a budget.
        seed: of every run.
        device: where they run.
        settings: options by owner (a variant's or the task's name), over those of the budget.

    Raises:
        Refused: the task, the budget or an option is unknown or out of range, the task's data are
            missing, or the settings name the window.
    """
    local = settings.get("local", {})
    if (given := local.get("window")) is not None:
        raise Refused(f"local.window={given} is what an audit varies; give it as --windows {given}")
    whole = Request(
        attention="softmax",
        task=task,
        budget=budget,
        seed=seed,
        device="cuda" if device.type == "cuda" else "cpu",
        precision=pick_precision("auto", device),
        compiled=device.type == "cuda",
        settings=settings,
    )
    yield plan(whole)
    yield plan(replace(whole, attention="none"))
    asks_at_tokens = find_task(plan(whole)).load("test").asked is not None
    for count in windows:
        seen = {**settings, "local": {**local, "window": count}}
        yield plan(replace(whole, attention="local", settings=seen))
        if not asks_at_tokens:
            yield plan(replace(whole, block=count))
