"""Lets tests import the benchmarks, which are no part of the installed package."""

import sys
from pathlib import Path

import pytest

# Last, so that the installed packages are tested and not the checkout's.
sys.path.append(str(Path(__file__).parents[2]))


@pytest.fixture(autouse=True)
def named_classes(monkeypatch):
    """Classes of `benchmarks.twins` are variants for as long as a test runs."""
    monkeypatch.setenv("ZOO_VARIANTS", "")
