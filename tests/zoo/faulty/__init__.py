"""Variants with one defect each, and the check that must detect it."""

from tests.zoo.faulty import heads, layers, recurrence
from tests.zoo.faulty.planted import FAULTY

__all__ = ["FAULTY", "heads", "layers", "recurrence"]
