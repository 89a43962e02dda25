"""Numbers that each variant computes, and the earlier code that computes the same.

Runs stay current where changed code has the same outputs, losses and gradients as before: `python
-m harness.behaviour` compares them, and writes the digests of the code to `behaviour.json`. See
`docs/decisions/records.md`.
"""

import json
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from harness.provenance import source_digest
from harness.records.files import write_atomic
from harness.records.sources import BEHAVIOUR
from zoo.conformance import configurations
from zoo.conformance.configuration import Configuration, Setting
from zoo.conformance.tensors import LENGTH, SCATTERED, random_tokens, seeded
from zoo.contract import Attention
from zoo.variants import variants

CASES = ((1, None), (LENGTH, SCATTERED), (1100, None))
"""Numbers of tokens, and masks. 1,100 exceed the sizes from which an implementation changes."""

TOLERANCE = 1e-7
"""Of numbers that are sums of about as many terms of each sign, relative to their root."""

SETTING = Setting(training=True, short_conv=4, max_len=1100)
"""The short convolution is of the questions of the suites."""


def values_of(name: str, variant: type[Attention]) -> list[float]:
    """Weighted sums of outputs and losses of each form, and of each of their gradients."""
    forms = configurations(name, variant)
    return [number for form in forms for number in _values(form)]


def _values(form: Configuration) -> Iterator[float]:
    for n, mask in CASES:
        layer, x = form.layer_for(SETTING), random_tokens(3, n).requires_grad_()
        attended = SETTING.run(layer, x, mask)
        real = attended.tokens if mask is None else attended.tokens[mask]
        losses = [loss for _, loss in sorted(attended.losses.items())]
        outputs = [real, *losses]
        of = {"": x, **dict(layer.named_parameters())}
        gradients = torch.autograd.grad(_sum(outputs), [*of.values()], allow_unused=True)
        found = [*outputs, *(each for each in gradients if each is not None)]
        yield from (round(_sum([each.detach()]).item(), 12) for each in found)


def _sum(tensors: list[Tensor]) -> Tensor:
    """A sum with weights around 0, over the root of the number of terms."""
    with seeded(7):
        weighted = [(x * torch.randn(x.shape, dtype=x.dtype)).sum() for x in tensors]
    return torch.stack(weighted).sum() / sum(x.numel() for x in tensors) ** 0.5


def same(before: list[float], now: list[float]) -> bool:
    """Return whether two lists of numbers differ by rounding alone."""
    return len(before) == len(now) and np.allclose(now, before, rtol=TOLERANCE, atol=TOLERANCE)


def compared() -> dict[str, dict[str, list[float] | list[str]]]:
    """The entry of each variant that can be checked: its numbers, and digests of such code."""
    before = json.loads(BEHAVIOUR.read_text())
    entries = {}
    for name, variant in variants.items():
        if variant.unchecked or not variant.__module__.startswith("zoo."):
            continue
        digest, old = source_digest(variant), before.get(name, {"values": [], "code": []})
        entries[name] = old
        if digest not in old["code"][-1:]:
            values = values_of(name, variant)
            code = old["code"] if same(old["values"], values) else []
            entries[name] = {"values": values, "code": [*(c for c in code if c != digest), digest]}
    return entries


def main() -> None:
    """Compare the variants whose code has changed, and write the file."""
    entries, before = compared(), json.loads(BEHAVIOUR.read_text())
    lines = (f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in sorted(entries.items()))
    write_atomic(BEHAVIOUR, ("{\n" + ",\n".join(lines) + "\n}\n").encode())
    for name, entry in entries.items():
        if entry != before.get(name):
            same_as_before = name in before and len(entry["code"]) > 1
            outcome = "the same as before" if same_as_before else "other numbers than before"
            sys.stdout.write(f"{name}: computes {outcome}\n")


if __name__ == "__main__":
    main()
