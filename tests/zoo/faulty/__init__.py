"""Variants with one defect each, and the check that must detect it."""

from tests.zoo.faulty import defects
from tests.zoo.faulty.planted import FAULTY

__all__ = ["FAULTY", "defects"]
