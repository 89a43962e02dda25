"""The committed certificates."""

from functools import cache

from harness.records.store import CertificateStore
from tests.conftest import ROOT

committed = cache(CertificateStore.within(ROOT / "results").by_variant)
"""The certificates of this repository by variant."""
