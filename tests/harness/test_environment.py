"""The process as the harness arranges it before it trains."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from harness.environment import keep_freed_memory

ROOT = Path(__file__).parents[2]

FAULTS = """
import resource
import torch
from harness.environment import keep_freed_memory

keep_freed_memory()
for _ in range(10):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**26)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks glibc, and this is another")
def test_a_large_block_that_was_freed_is_used_again_as_it_is():
    done = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, cwd=ROOT)
    fresh, *_, again = map(int, done.stdout.split())
    # 256 MiB: a page of 4 KiB each, or fewer where the system takes larger ones. What is small may
    # cut into a block that was freed, a few times.
    assert fresh > 64 and again < fresh / 10


def test_without_glibc_memory_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    keep_freed_memory()
