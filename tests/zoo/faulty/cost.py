"""False claims of a linear cost."""

import torch
from torch import nn

from tests.zoo.faulty.correct import Correct
from zoo.contract import Traits
from zoo.variants.linear import Linear


class QuadraticWithLinearClaim(Correct):
    """Claims a linear cost."""

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)


class PadsKeysToMaxLen(Correct):
    """Pads its keys to `max_len`."""

    traits = QuadraticWithLinearClaim.traits

    def attend(self, q, k, v, mask):
        missing = self.size.max_len - k.shape[2]
        real = torch.ones(k.shape[0], k.shape[2], dtype=torch.bool) if mask is None else mask
        k, v = (nn.functional.pad(part, (0, 0, 0, missing)) for part in (k, v))
        return super().attend(q, k, v, nn.functional.pad(real, (0, missing)))


class AllocatesEveryPair(Linear):
    """Needs few operations, and allocates a matrix of all pairs."""

    traits = QuadraticWithLinearClaim.traits

    def attend(self, q, k, v, mask):
        pairs = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
        return super().attend(q, k, v, mask) * pairs.any(1)[:, None]


class QuadraticWithPadding(Linear):
    """Computes all pairs if there is a mask."""

    traits = QuadraticWithLinearClaim.traits

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads + 0 * (q @ k.mT).sum(-1, keepdim=True)


class GrowsWithRootOfLength(Linear):
    """Each token attends to more tokens in longer inputs: to as many as the root of the length."""

    traits = QuadraticWithLinearClaim.traits

    def attend(self, q, k, v, mask):
        few = 4 * int(q.shape[2] ** 0.5)
        return super().attend(q, k, v, mask) + 0 * (q @ k[:, :, :few].mT @ v[:, :, :few])
