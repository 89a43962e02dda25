"""Claims to equal another variant, and to have no bidirectional form, that do not hold."""

from dataclasses import replace

import torch

from tests.zoo.faulty.correct import Bidirectional, CausalOnly
from zoo.contract import Identity


class DiffersFromSoftmaxWithPadding(Bidirectional):
    """Equals softmax only where nothing is padded."""

    identities = (Identity(other="softmax", where="always"),)

    def attend(self, q, k, v, mask):
        heads = super().attend(q, k, v, mask)
        return heads if mask is None else heads * (1 + 1e-10)


class StopsGradientsOfKeys(Bidirectional):
    """Equals softmax in value, and not in its gradients."""

    identities = (Identity(other="softmax", where="always"),)

    def attend(self, q, k, v, mask):
        return super().attend(q, k.detach(), v, mask)


class RoundsDifferently(Bidirectional):
    """Claims to equal softmax to the bit, and scales queries and keys before the product."""

    identities = (
        Identity(other="softmax", where="always", other_options={"backend": "naive"}, exact=True),
    )

    def attend(self, q, k, v, mask):
        return super().attend(q * 3, k / 3, v, mask)


class EqualsSoftmaxAfterPreparation(Bidirectional):
    """Correct: equals softmax where its parameter is 1, as `prepare` sets it."""

    identities = (
        Identity(
            other="softmax", where="scale = 1", other_options={"backend": "naive"}, exact=True,
            prepare=lambda layer, other: layer.scale.fill_(1),
        ),
    )  # fmt: skip

    def __init__(self, size):
        super().__init__(size)
        self.scale = torch.nn.Parameter(torch.tensor(1.1))

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v * self.scale, mask)


class BuildsBidirectionalWithoutClaim(CausalOnly):
    """Builds the causal form where the bidirectional one is requested."""

    def __init__(self, size):
        super().__init__(replace(size, causal=True))
