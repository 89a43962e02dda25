"""The committed certificates."""

from functools import cache, partial
from pathlib import Path

from harness.records.certificate import read_certificates

ROOT = Path(__file__).parents[1]

committed = cache(partial(read_certificates, ROOT / "results"))
"""The certificates of this repository by variant."""
