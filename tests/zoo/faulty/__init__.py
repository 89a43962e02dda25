"""Variants with one defect each, and the check that must detect it."""

from tests.zoo.faulty import conditions, heads, layers, packed, recurrence
from tests.zoo.faulty.planted import FAULTY

__all__ = ["FAULTY", "conditions", "heads", "layers", "packed", "recurrence"]
