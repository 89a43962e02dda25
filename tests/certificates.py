"""The committed certificates."""

from functools import cache
from pathlib import Path

from harness.records.store import CertificateStore

ROOT = Path(__file__).parents[1]

committed = cache(CertificateStore.within(ROOT / "results").by_variant)
"""The certificates of this repository by variant."""
