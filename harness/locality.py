"""The cells of a locality audit: one task, seen through windows and in shuffled blocks."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.budgets import Request, plan
from harness.data import find_task, load
from harness.records.spec import RunSpec
from tasks import Task
from zoo.registry import UserError


def seen(request: Request, windows: Sequence[int]) -> Iterator[RunSpec]:
    """The runs that see all, the token itself alone, and each window that is narrower than that.

    Nothing is loaded. Of windows that show all, somebody is warned.

    Args:
        request: any run of the task; its attention and its window are what is varied.
        windows: tokens to each side that a layer sees.

    Raises:
        UserError: the task, the budget or an option is unknown or out of range, the settings name
            the window, or every window shows all.
    """
    local = request.settings.get("local", {})
    if (given := local.get("window")) is not None:
        raise UserError(
            f"local.window={given} is what an audit varies; give it as --windows {given}"
        )
    whole = plan(replace(request, attention="softmax"))
    task = find_task(whole)
    narrow = _narrower(task, "window", windows, task.max_len - 1)
    if not narrow:
        raise UserError(
            f"windows {', '.join(map(str, windows))} all show the whole of {task.key}, whose "
            f"documents have at most {task.max_len} tokens; give narrower --windows"
        )
    yield whole
    yield plan(replace(request, attention="none"))
    for count in narrow:
        settings = {**request.settings, "local": {**local, "window": count}}
        yield plan(replace(request, attention="local", settings=settings))


def shuffled(requests: Sequence[Request], blocks: Sequence[int]) -> Iterator[RunSpec]:
    """The runs that see all of documents whose blocks are shuffled: each task is looked at once.

    A task that asks at tokens has none: what it asks for would no longer be where it asks. Of
    blocks that hold a whole document, somebody is warned.

    Args:
        requests: runs of any tasks; their attention and their blocks are what is varied.
        blocks: tokens of a shuffled block.

    Raises:
        UserError: a task's data are missing or damaged, or the memory does not hold them.
    """
    asks_at_tokens: dict[str, bool] = {}
    for request in requests:
        whole = replace(request, attention="softmax")
        spec = plan(whole)
        task = find_task(spec)
        if task.key not in asks_at_tokens:
            asks_at_tokens[task.key] = load(spec, task, "test").target_positions is not None
        if not asks_at_tokens[task.key]:
            narrow = _narrower(task, "block", blocks, task.max_len)
            yield from (plan(replace(whole, block=count)) for count in narrow)


def _narrower(task: Task, kind: str, counts: Sequence[int], whole: int) -> list[int]:
    """Those of `counts` below `whole`, from which on nothing is hidden; a warning for each other.

    Args:
        task: whose documents they are.
        kind: what is counted, for the message.
        counts: tokens of a window or a block.
        whole: the least number that changes nothing.
    """
    for count in counts:
        if count >= whole:
            warnings.warn(
                f"{kind} {count} is left out: documents of {task.key} have at most {task.max_len} "
                f"tokens, and from {whole} on it changes nothing",
                stacklevel=2,
            )
    return [count for count in counts if count < whole]
