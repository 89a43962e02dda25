"""The runs of a locality audit: a task with limited windows, and with shuffled blocks."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.plan import Plan, Request, resolve
from zoo.registry import UserError


def windowed(request: Request, windows: Sequence[int]) -> Iterator[Plan]:
    """The runs with full attention, with no attention, and with each window that limits it.

    A window, in tokens on each side, that covers whole sequences is left out with a warning. The
    variant and the window that `request` gives are replaced.

    Raises:
        UserError: `resolve` raises it, the settings give the window, or no window limits attention.
    """
    local = request.settings.get("local", {})
    if (given := local.get("window")) is not None:
        raise UserError(f"local.window={given} is varied by an audit; use --windows {given}")
    full = resolve(replace(request, attention="softmax"))
    sizes = _below(full, "window", windows, full.task.max_len - 1)
    if not sizes:
        raise UserError(
            f"windows {', '.join(map(str, windows))} cover whole sequences of {full.task.key}, "
            f"which have at most {full.task.max_len} tokens; give narrower --windows"
        )
    yield full
    yield resolve(replace(request, attention="none"))
    for count in sizes:
        settings = {**request.settings, "local": {**local, "window": count}}
        yield resolve(replace(request, attention="local", settings=settings))


def shuffled(requests: Sequence[Request], blocks: Sequence[int]) -> Iterator[Plan]:
    """The runs with full attention on sequences whose blocks are shuffled.

    Tasks with target positions are skipped: shuffling would move the targets. A block, in tokens,
    as long as the longest sequence is left out with a warning. The variant and the block that each
    of `requests` gives are replaced.

    Raises:
        UserError: `resolve` raises it.
    """
    for request in requests:
        full = resolve(replace(request, attention="softmax"))
        if not full.data.has_target_positions:
            sizes = _below(full, "block", blocks, full.task.max_len)
            yield from (
                resolve(replace(request, attention="softmax", block=count)) for count in sizes
            )


def _below(full: Plan, kind: str, counts: Sequence[int], limit: int) -> list[int]:
    """Those of `counts` that are below `limit`, with a warning for each of the others.

    `kind` is `window` or `block`; counts are in tokens; from `limit` on they have no effect.
    """
    for count in counts:
        if count >= limit:
            warnings.warn(
                f"{kind} {count} is left out: sequences of {full.task.key} have at most "
                f"{full.task.max_len} tokens, and from {limit} on it changes nothing",
                stacklevel=2,
            )
    return [count for count in counts if count < limit]
