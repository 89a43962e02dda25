"""The cells of a locality audit: one task, seen through windows and in shuffled blocks."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.budgets import Request, plan
from harness.data import find_task, load
from harness.spec import RunSpec
from zoo.registry import Refused


def seen(request: Request, windows: Sequence[int]) -> Iterator[RunSpec]:
    """The runs that see all, the token itself alone, and each window; nothing is loaded.

    Args:
        request: any run of the task; its attention and its window are what is varied.
        windows: tokens to each side that a layer sees.

    Raises:
        Refused: the task, the budget or an option is unknown or out of range, or the settings name
            the window.
    """
    local = request.settings.get("local", {})
    if (given := local.get("window")) is not None:
        raise Refused(f"local.window={given} is what an audit varies; give it as --windows {given}")
    yield plan(replace(request, attention="softmax"))
    yield plan(replace(request, attention="none"))
    for count in _narrower(request, windows):
        settings = {**request.settings, "local": {**local, "window": count}}
        yield plan(replace(request, attention="local", settings=settings))


def shuffled(requests: Sequence[Request], blocks: Sequence[int]) -> Iterator[RunSpec]:
    """The runs that see all of documents whose blocks are shuffled: each task is looked at once.

    A task that asks at tokens has none: what it asks for would no longer be where it asks.

    Args:
        requests: runs of any tasks; their attention and their blocks are what is varied.
        blocks: tokens of a shuffled block.

    Raises:
        Refused: a task's data are missing or damaged, or the memory does not hold them.
    """
    asks_at_tokens: dict[str, bool] = {}
    for request in requests:
        whole = replace(request, attention="softmax")
        spec = plan(whole)
        task = find_task(spec)
        if task.key not in asks_at_tokens:
            asks_at_tokens[task.key] = load(spec, task, "test").asked is not None
        if not asks_at_tokens[task.key]:
            narrow = _narrower(request, blocks)
            yield from (plan(replace(whole, block=count)) for count in narrow)


def _narrower(request: Request, tokens: Sequence[int]) -> list[int]:
    """Those of `tokens` that are not all tokens of a document; of the others somebody is warned."""
    task = find_task(plan(replace(request, attention="softmax")))
    for count in tokens:
        if count >= task.max_len:
            warnings.warn(
                f"window {count} is left out: {task.key} has {task.max_len} tokens, all are seen",
                stacklevel=2,
            )
    return [count for count in tokens if count < task.max_len]
