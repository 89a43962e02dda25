"""Rivals that take turns, the table of what they took, and the machine that it holds for."""

import json
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.environment import describe
from harness.measure import quartiles, take_turns
from zoo.cost import peak_bytes


def machine() -> dict[str, Any]:
    """What the numbers of this process hold for."""
    environment = describe("cpu")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {"device": environment.device, "threads": environment.threads, **versions}


def compare(rivals: Mapping[str, Callable[[], Any]], memory: bool) -> None:
    """Print time, its ratio to the first rival turn by turn, and peak memory, as JSON lines."""
    device = torch.device("cpu")
    names = list(rivals)
    taken = dict(zip(names, take_turns(list(rivals.values()), device, rounds=31), strict=True))
    print(json.dumps(machine()))
    for name in names:
        pairs = zip(taken[name], taken[names[0]], strict=True)
        ratio = quartiles(own / first for own, first in pairs)
        row: dict[str, Any] = {
            "rival": name,
            "milliseconds": quartiles(1000 * t for t in taken[name]).model_dump(),
            f"ratio to {names[0]}": ratio.model_dump(),
        }
        if memory:
            row["peak MiB"] = peak_bytes(rivals[name], device) / 2**20
        print(json.dumps(row))
