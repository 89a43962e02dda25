"""Classes of `benchmarks.twins` are variants for as long as a test runs."""

import pytest


@pytest.fixture(autouse=True)
def named_classes(monkeypatch):
    monkeypatch.setenv("ZOO_VARIANTS", "")
