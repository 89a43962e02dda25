"""Defects of what is declared about dropout."""

from tests.zoo.faulty.correct import Bidirectional


class IgnoresDropout(Bidirectional):
    """Declares that it drops attention weights, and does not."""

    drops_weights = True
