"""The cells of a locality audit: one task, seen through windows and in shuffled blocks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.budgets import Request, plan
from harness.run import find_task
from harness.spec import RunSpec
from zoo.registry import Refused


def cells(request: Request, windows: Sequence[int]) -> Iterator[RunSpec]:
    """The runs behind the curves of a task: `reports.locality` says what they mean.

    A task that asks at tokens is not shuffled: what it asks for would no longer be where it asks.

    Args:
        request: any run of the task; its attention, its window and its blocks are what is varied.
        windows: tokens to each side that a layer sees, and tokens of a shuffled block.

    Raises:
        Refused: the task, the budget or an option is unknown or out of range, the task's data are
            missing, or the settings name the window.
    """
    local = request.settings.get("local", {})
    if (given := local.get("window")) is not None:
        raise Refused(f"local.window={given} is what an audit varies; give it as --windows {given}")
    whole = replace(request, attention="softmax")
    yield plan(whole)
    yield plan(replace(whole, attention="none"))
    asks_at_tokens = find_task(plan(whole)).load("test").asked is not None
    for count in windows:
        seen = {**request.settings, "local": {**local, "window": count}}
        yield plan(replace(whole, attention="local", settings=seen))
        if not asks_at_tokens:
            yield plan(replace(whole, block=count))
