"""Defects of packed rows: something of one sequence reaches the next."""

from types import MappingProxyType

import torch

from tests.zoo.faulty.correct import Correct, Recurrent
from tests.zoo.faulty.planted import claiming, fails
from zoo.contract import Attended, Traits
from zoo.kernels.real_tokens import token_ranks
from zoo.packed import Packed
from zoo.variants.local import Local

CAUSAL = claiming(
    Recurrent, traits=Traits.causal_only(linear=False, stochastic=False, recurrent=True)
)


def packs(base: type, leak: str = "") -> type:
    """A variant with packed rows of its own, which computes `leak` of whole rows."""

    def packed(self, x, mask, segments):
        rows = Packed(segments, mask)

        def each(part, compute, *inputs):
            if part == leak:
                return compute(*inputs, mask)
            return rows.join([compute(*map(part.of, inputs), part.mask) for part in rows.parts])

        def heads(query, context, mask):
            positions = None if mask is None else token_ranks(mask)
            return torch.cat(self._heads(query, context, positions, positions), dim=-1)

        query = each("convolution", self.query_conv, self.query(x))
        context = each("convolution", self.context_conv, self.context(x))
        q, k, v = each("positions", heads, query, context).chunk(3, dim=-1)
        return Attended(self._merge(x, each("heads", self.attend, q, k, v)))

    return type(f"Leaks{leak.title()}Of{base.__name__}", (base,), {"packed": packed})


for base, leak in (
    (CAUSAL, "heads"),  # its state
    (Correct, "convolution"), (Recurrent, "positions"),
    (Local, "heads"),  # its window
):  # fmt: skip
    fails("packed equals separate")(packs(base, leak))


@fails("packed prompts equal separate")
class PrefillsWholeRows(Recurrent):
    def prefill(self, x, mask=None, state=None, segments=None):
        if segments is None:
            return super().prefill(x, mask, state)
        return self.extend(x, None, self.start(len(x)) if state is None else state)


@fails("packed prompts equal separate")
class ForgetsStateBeforePackedPrompt(Recurrent):
    def prefill(self, x, mask=None, state=None, segments=None):
        return super().prefill(x, mask, None if segments is not None else state, segments)


@fails("rejects packed sequences")
class IgnoresSegments(Correct):
    expected_failures = MappingProxyType({"padding invariance": "it is not tested here"})

    def packed(self, x, mask, segments):
        return self(x, mask=mask)
