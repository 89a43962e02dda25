"""Implementations timed alternately: their times, ratios and memory, and the machine."""

import json
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch

from harness.environment import describe
from harness.measure import quartiles, take_turns
from zoo.cost import peak_bytes


def machine() -> dict[str, Any]:
    """Device, threads and versions of this process."""
    environment = describe("cpu")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    return {"device": environment.device, "threads": environment.threads, **versions}


def compare(implementations: Mapping[str, Callable[[], Any]], memory: bool) -> None:
    """Print time, its ratio to the first implementation round by round, and peak memory."""
    device = torch.device("cpu")
    names = list(implementations)
    turns = take_turns(list(implementations.values()), device, rounds=31)
    seconds = dict(zip(names, turns, strict=True))
    print(json.dumps(machine()))
    for name in names:
        pairs = zip(seconds[name], seconds[names[0]], strict=True)
        ratio = quartiles(own / first for own, first in pairs)
        row: dict[str, Any] = {
            "implementation": name,
            "milliseconds": quartiles(1000 * t for t in seconds[name]).model_dump(),
            f"ratio to {names[0]}": ratio.model_dump(),
        }
        if memory:
            row["peak MiB"] = peak_bytes(implementations[name], device) / 2**20
        print(json.dumps(row))
