"""The cells of a locality audit: one task, seen through windows and in shuffled blocks."""

from collections.abc import Iterator, Sequence

import torch

from harness.budgets import Request, plan
from harness.environment import pick_precision
from harness.spec import RunSpec


def cells(
    task: str, windows: Sequence[int], budget: str, seed: int, device: torch.device
) -> Iterator[RunSpec]:
    """The runs behind the two curves of a task: `reports.locality` says what they mean.

    Args:
        task: name of a task.
        windows: tokens to each side that a layer sees, and tokens of a shuffled block.
        budget: name of a budget.
        seed: of every run.
        device: where they run.

    Raises:
        Refused: the task or the budget is unknown.
    """

    def cell(attention: str, block: int = 0, window: int = 0) -> RunSpec:
        request = Request(
            attention=attention,
            task=task,
            budget=budget,
            seed=seed,
            device="cuda" if device.type == "cuda" else "cpu",
            precision=pick_precision("auto", device),
            compiled=device.type == "cuda",
            block=block,
            settings={"local": {"window": window}} if window else {},
        )
        return plan(request)

    yield cell("softmax")
    yield cell("none")
    for count in windows:
        yield cell("local", window=count)
        yield cell("softmax", block=count)
