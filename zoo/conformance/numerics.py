"""Shapes, precisions, gradients, repeatability, and the transformations of PyTorch."""

import warnings
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from zoo.conformance.subject import (
    LENGTH,
    Finding,
    Subject,
    at_most,
    attend,
    distance,
    draw,
    paddings,
    speak,
)

LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129)
"""Around the block sizes in use."""


def every_length_runs(subject: Subject) -> Finding:
    """Lengths from 1, around every block size: finite, and of the right shape."""
    layer = subject.layer().eval()
    bad = []
    for n in LENGTHS:
        tokens = attend(layer, draw(2, n))
        if tokens.shape != (2, n, 16) or not tokens.isfinite().all():
            bad.append(n)
    return Finding(not bad, f"lengths {LENGTHS}: {f'failed at {bad}' if bad else 'all right'}")


def every_precision_runs(subject: Subject) -> Finding:
    """fp64, fp32 and bf16 modules keep their dtype; autocast runs; all stay near fp64."""
    exact = attend(subject.layer().eval(), draw(2, LENGTH))
    worst, notes = True, []
    for dtype, bound in ((torch.float32, 1e-3), (torch.bfloat16, 0.3)):
        tokens = attend(subject.layer().to(dtype).eval(), draw(2, LENGTH).to(dtype))
        error = distance(tokens.double(), exact)
        worst &= tokens.dtype == dtype and error <= bound
        notes.append(f"{dtype} off by {error:.1g}".replace("torch.", ""))
    with torch.autocast("cpu", torch.bfloat16):
        tokens = attend(subject.layer().float().eval(), draw(2, LENGTH).float())
    error = distance(tokens.double(), exact)
    return Finding(worst and error <= 0.3, ", ".join([*notes, f"autocast off by {error:.1g}"]))


def every_parameter_learns(subject: Subject) -> Finding:
    """Each parameter gets a gradient that is finite and not all zero."""
    layer, keep = subject.layer(), next(paddings())
    x = draw(3, LENGTH)
    speak(layer(x, x, keep), keep).backward()
    mute = [
        name
        for name, parameter in layer.named_parameters()
        if parameter.grad is None or not parameter.grad.isfinite().all() or not parameter.grad.any()
    ]
    count = sum(1 for _ in layer.parameters())
    return Finding(not mute, f"of {count} parameters without a gradient: {mute or 'none'}")


def loud_inputs_stay_finite(subject: Subject) -> Finding:
    """Inputs a thousand times as loud give finite outputs and gradients, in fp32."""
    layer = subject.layer().float()
    x = (1e3 * draw(2, LENGTH)).float().requires_grad_()
    attended = layer(x, x, None)
    speak(attended).backward()
    parts = [attended.tokens, x.grad, *(p.grad for p in layer.parameters())]
    bad = sum(int((~part.isfinite()).sum()) for part in parts if part is not None)
    return Finding(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def gradients_are_right(subject: Subject) -> Finding:
    """Against finite differences, at a tiny size, with padding."""
    layer, keep = subject.layer(max_len=8, dim=4).eval(), torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = False
    x = (0.7 * draw(2, 6, dim=4)).requires_grad_()

    def real(tokens: Tensor) -> Tensor:
        return attend(layer, tokens, keep)[keep]

    try:
        torch.autograd.gradcheck(real, (x,), eps=1e-6, atol=1e-5, rtol=1e-4)
    except RuntimeError as error:
        return Finding(False, f"finite differences disagree: {str(error).splitlines()[0]}")
    return Finding(True, "finite differences agree to 1e-05")


def evaluation_repeats(subject: Subject) -> Finding:
    """Evaluation gives the same bits twice, whatever the generator does in between."""
    layer, x = subject.layer(dropout=0.5).eval(), draw(2, LENGTH)
    first = attend(layer, x)
    torch.rand(7)
    differ = int((attend(layer, x) != first).sum())
    return Finding(differ == 0, f"{differ} of {first.numel()} entries differ at the second call")


def training_is_evaluation(subject: Subject) -> Finding:
    """Without dropout, training gives evaluation's output, unless the variant is stochastic."""
    layer, x = subject.layer(), draw(2, LENGTH)
    return at_most(distance(attend(layer, x), attend(layer.eval(), x)), 1e-9, "differ by")


def losses_are_as_declared(subject: Subject) -> Finding:
    """The losses of training are those of the traits, scalar and finite; evaluation has none."""
    layer, x = subject.layer(), draw(2, LENGTH)
    found = dict(layer(x, x, None).losses)
    scalar = all(loss.ndim == 0 and loss.isfinite() for loss in found.values())
    silent = not layer.eval()(x, x, None).losses
    passed = set(found) == set(subject.traits.losses) and scalar and silent
    declared = list(subject.traits.losses)
    return Finding(
        passed, f"declared {declared}, emitted {sorted(found)}, in evaluation none: {silent}"
    )


def forward_is_pure(subject: Subject) -> Finding:
    """Neither an attribute nor a buffer changes in training."""
    layer, x = subject.layer(), draw(2, LENGTH)
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    names = set(vars(layer))
    layer(x, x, None)
    moved = [
        name for name, value in layer.state_dict().items() if not torch.equal(value, state[name])
    ]
    moved += sorted(set(vars(layer)) ^ names)
    return Finding(not moved, f"changed: {moved or 'nothing'}")


def state_round_trips(subject: Subject) -> Finding:
    """A second layer with the first one's state gives the same bits."""
    layer, other, x = subject.layer().eval(), subject.layer(seed=9).eval(), draw(2, LENGTH)
    other.load_state_dict(layer.state_dict())
    return at_most(distance(attend(other, x), attend(layer, x)), 0.0, "differ by")


def it_compiles(subject: Subject) -> Finding:
    """One graph through `torch.compile`, and the same output."""
    layer, x = subject.layer().eval(), draw(2, LENGTH)
    torch.compiler.reset()
    try:
        compiled: Any = torch.compile(layer, fullgraph=True, backend="aot_eager")
        return at_most(distance(attend(compiled, x), attend(layer, x)), 1e-9, "differ by")
    except Exception as error:
        return Finding(False, f"{type(error).__name__}: {str(error).splitlines()[0]}")


def seeds_run_at_once(subject: Subject) -> Finding:
    """`torch.func.vmap` over two sets of parameters gives each its own output."""
    layers, x = [subject.layer(seed=seed).eval() for seed in (1, 2)], draw(2, 20)
    state = stack_module_state(layers)

    def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor]) -> Tensor:
        return functional_call(layers[0], (parameters, buffers), (x, x, None)).tokens

    try:
        with warnings.catch_warnings():
            # A kernel without a batching rule is slower, and warns, but is right.
            warnings.simplefilter("ignore")
            found = vmap(one)(*state)
    except Exception as error:
        return Finding(False, f"{type(error).__name__}: {str(error).splitlines()[0]}")
    worst = max(distance(a, attend(layer, x)) for a, layer in zip(found, layers, strict=True))
    return at_most(worst, 1e-9, "differ by")
