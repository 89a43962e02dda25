"""Shapes, precisions, gradients, repeatability, and the transformations of PyTorch."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from zoo.conformance.subject import (
    LENGTH,
    ROUNDING,
    Finding,
    Subject,
    at_most,
    attend,
    attended,
    distance,
    draw,
    paddings,
    probe_loss,
)
from zoo.contract import Attended, Attention, attended_by
from zoo.registry import first_line, in_one_line

*_, PADDING = paddings()
"""Padding before, between and behind the real tokens."""

LENGTHS = (1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 128, 129, 160)
"""Around the block sizes in use, and the most that the layer is built for."""


def every_length_runs(subject: Subject) -> Finding:
    """Lengths from 1, around every block size: the right shape, finite forward and backward."""
    layer = subject.layer()
    bad = []
    for n in LENGTHS:
        x = draw(2, n).requires_grad_()
        found = attended(layer, x)
        (gradient,) = torch.autograd.grad(probe_loss(found), x)
        finite = found.tokens.isfinite().all() and gradient.isfinite().all()
        if found.tokens.shape != x.shape or not finite:
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
        other = "" if tokens.dtype == dtype else f" and came out as {tokens.dtype}"
        notes.append(f"{dtype} off by {error:.1g}{other}".replace("torch.", ""))
    with torch.autocast("cpu", torch.bfloat16):
        tokens = attend(subject.layer().float().eval(), draw(2, LENGTH).float())
    error = distance(tokens.double(), exact)
    return Finding(worst and error <= 0.3, ", ".join([*notes, f"autocast off by {error:.1g}"]))


def every_parameter_learns(subject: Subject) -> Finding:
    """Each parameter gets a gradient that is finite and not all zero."""
    layer, mask = subject.layer(), next(paddings())
    x = draw(3, LENGTH)
    loss = probe_loss(attended(layer, x, mask), mask)
    if loss.requires_grad:
        loss.backward()
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
    found = attended(layer, x)
    probe_loss(found).backward()
    parts = [found.tokens, x.grad, *(p.grad for p in layer.parameters())]
    bad = sum(int((~part.isfinite()).sum()) for part in parts if part is not None)
    return Finding(bad == 0, f"{bad} entries of outputs and gradients are not finite")


def gradients_are_right(subject: Subject) -> Finding:
    """Against finite differences, at a tiny size, with padding: of tokens, parameters and losses.

    In evaluation every derivative by the tokens is looked at; in both modes those by tokens and
    parameters together, along random directions.
    """
    layer, mask = subject.layer(max_len=8, dim=4), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    x = (0.7 * draw(2, 6, dim=4)).requires_grad_()
    names, weights = zip(*[("", x), *layer.named_parameters()], strict=True)

    def real(tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            named = dict(zip(names[1:], state, strict=False))
            found = attended_by(layer, functional_call(layer, named, (tokens, tokens, mask)))
        return found.tokens[mask], *found.losses.values()

    try:
        layer.eval()
        torch.autograd.gradcheck(real, (x,), eps=1e-6, atol=1e-5, rtol=1e-4)
        for training in (False, True):
            layer.train(training)
            torch.autograd.gradcheck(real, weights, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)
    except RuntimeError as error:
        return Finding(False, f"finite differences disagree: {first_line(error)}")
    return Finding(True, "finite differences agree to 1e-05")


def evaluation_repeats(subject: Subject) -> Finding:
    """Evaluation gives the same bits twice, whatever the generator does in between."""
    layer, x = subject.layer(dropout=0.5).eval(), draw(2, LENGTH)
    first = attend(layer, x)
    torch.rand(7)
    differ = int((attend(layer, x) != first).sum())
    return Finding(differ == 0, f"{differ} of {first.numel()} entries differ at the second call")


def one_seed_gives_one_result(subject: Subject) -> Finding:
    """Built, fed and differentiated twice from one seed, dropout included: the same bits."""
    runs = []
    for _ in range(2):
        layer, x = subject.layer(dropout=0.2).float(), draw(3, LENGTH).float().requires_grad_()
        runs.append(_everything(layer, layer, x, PADDING))
    differ = sum(not torch.equal(one, other) for one, other in zip(*runs, strict=True))
    return Finding(differ == 0, f"{differ} of {len(runs[0])} tensors differ at the second run")


def training_is_evaluation(subject: Subject) -> Finding:
    """Without dropout, training gives evaluation's output, unless the variant is stochastic."""
    layer, x, worst = subject.layer(), draw(3, LENGTH), 0.0
    for mask in (None, PADDING):
        real = slice(None) if mask is None else mask
        trained, evaluated = (attend(layer.train(mode), x, mask)[real] for mode in (True, False))
        worst = max(worst, distance(trained, evaluated))
    return at_most(worst, ROUNDING, "differ by")


def losses_are_as_declared(subject: Subject) -> Finding:
    """The losses of training are those of the traits, scalar and finite; evaluation has none."""
    layer, x = subject.layer(), draw(2, LENGTH)
    found = dict(attended(layer, x).losses)
    scalar = all(one.ndim == 0 and one.isfinite() and one.requires_grad for one in found.values())
    silent = not attended(layer.eval(), x).losses
    passed = set(found) == set(subject.traits.losses) and scalar and silent
    declared = list(subject.traits.losses)
    return Finding(
        passed, f"declared {declared}, emitted {sorted(found)}, in evaluation none: {silent}"
    )


def forward_is_pure(subject: Subject) -> Finding:
    """No attribute, parameter or buffer changes, nor do the tokens, whatever the mode."""
    changed = set()
    for training in (True, False):
        layer, x = subject.layer(dropout=0.2).train(training), draw(3, LENGTH)
        before = dict(_held(layer, x))
        attended(layer, x, PADDING)
        after = dict(_held(layer, x))
        changed |= {name for name in before | after if not _is(before.get(name), after.get(name))}
    return Finding(not changed, f"changed: {sorted(changed) or 'nothing'}")


def _held(layer: nn.Module, x: Tensor) -> Iterator[tuple[str, Any]]:
    """Whatever a forward could write to: tensors, by value; attributes, as they are."""
    yield "x", x.clone()
    for where, module in layer.named_modules():
        for name, value in vars(module).items():
            held = dict(value) if name in ("_parameters", "_buffers", "_modules") else {"": value}
            for inner, one in held.items():
                yield ".".join(filter(None, (where, name, inner))), _frozen(one)


def _frozen(held: Any) -> Any:
    """A copy that a forward cannot reach: of tensors and of containers, whatever they hold."""
    if isinstance(held, Tensor):
        return held.detach().clone()
    if isinstance(held, dict):
        return {key: _frozen(one) for key, one in held.items()}
    if isinstance(held, list | tuple):
        return [_frozen(one) for one in held]
    return set(held) if isinstance(held, set) else held


def _is(one: Any, other: Any) -> bool:
    """Whether two frozen things are the same."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is, one, other))
    return one == other if isinstance(one, set) else one is other


def state_round_trips(subject: Subject) -> Finding:
    """A second layer with the first one's state gives the same bits."""
    layer, other, x = subject.layer().eval(), subject.layer(seed=9).eval(), draw(2, LENGTH)
    other.load_state_dict(layer.state_dict())
    return at_most(distance(attend(other, x), attend(layer, x)), 0.0, "differ by")


def it_compiles(subject: Subject) -> Finding:
    """One graph through `torch.compile`: evaluation, and padded training with its gradients."""
    layer, x, worst = subject.layer(), draw(3, LENGTH).requires_grad_(), 0.0
    for mask, training in ((None, False), (PADDING, True)):
        torch.compiler.reset()
        layer.train(training)
        try:
            compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
            with torch.set_grad_enabled(training):
                found = _everything(layer, compiled, x, mask)
                expected = _everything(layer, layer, x, mask)
        except Exception as error:
            return Finding(False, in_one_line(error))
        pairs = zip(found, expected, strict=True)
        worst = max(worst, *(distance(one, other) for one, other in pairs))
    return at_most(worst, ROUNDING, "differ by")


def _everything(
    layer: Attention, run: Callable[..., Attended], x: Tensor, mask: Tensor | None
) -> list[Tensor]:
    """From one seed, the outputs of `run`, which is `layer` in some form; losses and gradients."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        ran = attended_by(layer, run(x, x, mask))
    found = [ran.tokens, *ran.losses.values()]
    if not torch.is_grad_enabled():
        return found
    wanted, loss = [x, *layer.parameters()], probe_loss(ran, mask)
    return [*found, *torch.autograd.grad(loss, wanted, materialize_grads=True)]


def seeds_run_at_once(subject: Subject) -> Finding:
    """`torch.func.vmap` over sets of parameters gives each its own output, padded or not."""
    layers, x = [subject.layer(seed=seed).eval() for seed in (1, 2)], draw(3, LENGTH)
    if not layers[0].state_dict():
        return Finding(True, "no parameters that could differ")
    state, worst = stack_module_state(layers), 0.0
    for mask in (None, PADDING):

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], mask=mask) -> Tensor:
            ran = functional_call(layers[0], (parameters, buffers), (x, x, mask))
            return attended_by(layers[0], ran).tokens

        try:
            with warnings.catch_warnings():
                # A kernel without a batching rule is slower, and warns, but is right.
                warnings.simplefilter("ignore")
                found = vmap(one)(*state)
        except Exception as error:
            return Finding(False, in_one_line(error))
        expected = torch.stack([attend(layer, x, mask) for layer in layers])
        worst = max(worst, distance(found, expected))
    return at_most(worst, ROUNDING, "differ by")
