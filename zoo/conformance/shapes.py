"""Lengths, precisions and scales of the input."""

import torch

from zoo.conformance.configuration import Configuration, Outcome
from zoo.conformance.tensors import LENGTH, distance, output, probe_loss, random_tokens

LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 160)
"""Around the block sizes in use, up to the largest that the layer is built for."""


def check_lengths(configuration: Configuration) -> Outcome:
    """Every length gives an output of the right shape, finite, with a finite gradient."""
    layer = configuration.layer()
    bad = []
    for n in LENGTHS:
        x = random_tokens(2, n).requires_grad_()
        attended = layer(x)
        (gradient,) = torch.autograd.grad(probe_loss(attended), x)
        finite = attended.tokens.isfinite().all() and gradient.isfinite().all()
        if attended.tokens.shape != x.shape or not finite:
            bad.append(n)
    return Outcome(not bad, f"lengths {LENGTHS}: {f'failed at {bad}' if bad else 'all pass'}")


def check_precisions(configuration: Configuration) -> Outcome:
    """fp32 and bf16 modules keep their dtype; they, and autocast, agree with fp64."""
    exact = output(configuration.layer().eval(), random_tokens(2, LENGTH))
    passed, details = True, []
    for dtype, bound in ((torch.float32, 1e-3), (torch.bfloat16, 0.3)):
        x = random_tokens(2, LENGTH).to(dtype)
        tokens = output(configuration.layer().to(dtype).eval(), x)
        error = distance(tokens.double(), exact)
        passed &= tokens.dtype == dtype and error <= bound
        other = "" if tokens.dtype == dtype else f" with an output of {tokens.dtype}"
        details.append(f"{dtype} differs by {error:.1g}{other}".replace("torch.", ""))
    with torch.autocast("cpu", torch.bfloat16):
        tokens = output(configuration.layer().float().eval(), random_tokens(2, LENGTH).float())
    error = distance(tokens.double(), exact)
    details.append(f"autocast differs by {error:.1g}")
    return Outcome(passed and error <= 0.3, ", ".join(details))


def check_large_inputs(configuration: Configuration) -> Outcome:
    """Inputs a thousand times larger give finite outputs and gradients in fp32."""
    layer = configuration.layer().float()
    x = (1e3 * random_tokens(2, LENGTH)).float().requires_grad_()
    attended = layer(x)
    probe_loss(attended).backward()
    parts = [attended.tokens, x.grad, *(p.grad for p in layer.parameters())]
    bad = sum(int((~part.isfinite()).sum()) for part in parts if part is not None)
    return Outcome(bad == 0, f"{bad} entries of outputs and gradients are not finite")
