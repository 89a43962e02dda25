"""Defects of exported graphs."""

import torch

from tests.zoo.faulty.correct import Bidirectional


class FixesTheBatch(Bidirectional):
    """Its graph is for the number of samples of its export."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, mask) * (len(q) / q.shape[0])


class DiffersWhenExported(Bidirectional):
    """The output of its graph is too large by one part in a million, where tokens are padded."""

    def attend(self, q, k, v, mask):
        wrong = mask is not None and torch.compiler.is_exporting()
        return super().attend(q, k, v, mask) * (1 + 1e-6 * wrong)
