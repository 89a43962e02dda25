"""Every parameter gets a gradient, and gradients are correct: by size, precision and mode."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import product

import torch
from torch import Tensor
from torch.func import functional_call

from zoo.conformance.configuration import ROUNDING, Configuration, Outcome, Setting
from zoo.conformance.numerics import LOW_PRECISIONS, cause
from zoo.conformance.tensors import (
    LENGTH,
    LONG,
    LONGER,
    distance,
    padding_masks,
    probe_loss,
    random_tokens,
    relative_error,
    seeded,
)
from zoo.contract import Attended, Attention
from zoo.registry import UserError, in_one_line

# The largest relative error of a derivative against finite differences at the usual lengths.
BOUND = 1e-3

LARGE = 30.0  # The standard deviation of the inputs in fp16

# The largest relative errors of outputs and gradients there, unless rounding has more effect.
# Correct variants differ by up to 0.02 and 0.3: a softmax of logits of hundreds has few digits.
HALF_BOUNDS = 0.1, 0.5

# The rounding of a token in fp16, and how often its effect in fp32 is allowed.
# Logits of hundreds are rounded to quarters, so two softmaxes in a row may have no digit of a
# gradient. A layer that rounds tokens, projections and logits has the effect of one several times.
HALF_ROUNDING, HALF_FACTOR = 2**-11, 4.0

# The largest relative error of a gradient that is computed inside of autocast.
AUTOCAST_BOUND = 0.02

# No other axis of a parameter is a multiple of the number of heads: both are primes.
MANY_HEADS = Setting(training=True, heads=11, dim=44, max_len=163)

# Tokens of gradients that are differentiated again: kernels of long inputs run from 512 on.
CREATED = 600

STEP = 1e-7  # The step of finite differences: few arguments of a ReLU change their sign within it


def check_parameters(configuration: Configuration) -> Outcome:
    """Each parameter, and its part of each head, gets a gradient that is finite and not zero."""
    # It is the same whatever else requires one, and after other forward passes.
    count, missing, differ = 0, set[str](), set[str]()
    cases = *product((4, 0), (padding_masks()[0], None), (LENGTH,)), (0, None, LONG)
    for taps, mask, n in cases:
        layer, other = (
            configuration.layer(short_conv=taps, max_len=n, seed=seed) for seed in (1, 9)
        )
        x = random_tokens(3 if n < LONG else 1, n)
        inputs = {"the tokens": x, **dict(layer.named_parameters())}
        (tokens, *names), count = inputs, max(count, len(inputs) - 1)
        expected = _gradients_of(layer, inputs, mask, [*inputs])
        bad = {name for name in names if not expected[name].isfinite().all()}
        missing |= bad | {name for name in names if not expected[name].any()}
        subsets = [tokens], names, *([name] for name in names if n < LONG)
        each = [_gradients_of(layer, inputs, mask, subset) for subset in subsets]
        each.append(_gradients_of(layer, inputs, mask, [*inputs], between=(layer, other)))
        differ |= {
            name
            for gradients in each
            for name, gradient in gradients.items()
            if name not in bad and distance(gradient, expected[name]) > ROUNDING
        }
    missing |= _without_a_head(configuration)
    detail = f"of {count} parameters without a gradient: {sorted(missing) or 'none'}; with another"
    detail += " one where fewer inputs require one, or after other forward passes"
    return Outcome(not missing and not differ, f"{detail}: {sorted(differ) or 'none'}")


def _without_a_head(configuration: Configuration) -> set[str]:
    # A part is a block along an axis, or every h-th entry of it.
    heads, x = MANY_HEADS.heads, MANY_HEADS.tokens(2)
    try:
        layer = configuration.layer_for(MANY_HEADS)
    except UserError:
        return set()  # a number of heads that it refuses
    names, parameters = zip(*[*layer.named_parameters(), ("", x.requires_grad_())], strict=True)
    loss = probe_loss(MANY_HEADS.run(layer, x))
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return {
        f"{name} of one of {heads} heads"
        for name, gradient in zip(names[:-1], gradients, strict=False)
        for axis in range(gradient.ndim)
        if gradient.shape[axis] % heads == 0
        for parts in ((heads, -1), (-1, heads))
        if not gradient.movedim(axis, 0).unflatten(0, parts).movedim(parts.index(heads), 0)
        .flatten(1).any(1).all()
    }  # fmt: skip


def _gradients_of(
    layer: Attention, inputs: Mapping[str, Tensor], mask: Tensor | None, names: list[str],
    between: Iterable[Attention] = (),
) -> dict[str, Tensor]:  # fmt: skip
    # The layers in `between` are called with other tokens between the two passes.
    for name, tensor in inputs.items():
        tensor.requires_grad_(name in names)
    with seeded(5):
        loss = probe_loss(layer(inputs["the tokens"], mask=mask), mask)
    for other in between:
        other(random_tokens(*inputs["the tokens"].shape[:2], seed=4).requires_grad_(), mask=mask)
    of = [inputs[name] for name in names]
    gradients = (
        torch.autograd.grad(loss, of, materialize_grads=True)
        if loss.requires_grad
        else map(torch.zeros_like, of)
    )
    return dict(zip(names, gradients, strict=True))


def check_finite_differences(configuration: Configuration) -> Outcome:
    """Gradients of outputs and losses equal finite differences, padded or not, in both modes."""
    # A difference at a small size raises `GradcheckError`.
    layer, mask = configuration.layer(max_len=8, dim=4), torch.ones(2, 6, dtype=torch.bool)
    mask[1, 4:] = False
    x = (0.7 * random_tokens(2, 6, dim=4)).requires_grad_()
    inputs, call = _function(layer, x, mask)

    def run(*inputs: Tensor) -> tuple[Tensor, ...]:
        result = call(*inputs)
        return result.tokens[mask], *result.losses.values()

    gradcheck = partial(torch.autograd.gradcheck, run, eps=1e-6, atol=1e-5, rtol=1e-4)
    layer.eval()
    gradcheck((x,))
    for training in (False, True):
        layer.train(training)
        gradcheck(inputs, fast_mode=True)
    return _directional(configuration, LENGTH)


def check_long(configuration: Configuration) -> Outcome:
    """The same with more than 1,000 and 2,000 tokens, along one direction of each parameter."""
    return _directional(configuration, LONG, LONGER)


def _directional(configuration: Configuration, *lengths: int) -> Outcome:
    cases = product(lengths, (False, True), (False, True))
    largest, where = 0.0, ""
    for length, padded, training in cases:
        if length == LONGER and padded == training:
            continue
        layer, x = configuration.layer(max_len=length), 0.7 * random_tokens(2, length)
        x = x[: 1 if length == LONGER else 2]
        mask = padding_masks(length)[1][: len(x)] if padded else None
        inputs, call = _function(layer.train(training), x.requires_grad_(), mask)
        names = ["the tokens", *(name for name, _ in layer.named_parameters())]
        for name, error in zip(names, _errors(inputs, call, mask), strict=True):
            if error > largest:
                mode = "training" if training else "evaluation"
                padding = " with padding" * padded
                largest, where = error, f" for {name} in {mode}{padding} of {length} tokens"
    detail = f"differ from finite differences by {largest:.2g}{where}"
    return Outcome(largest <= BOUND, f"{detail}, at most {BOUND:.0e} allowed")


def _function(
    layer: Attention, x: Tensor, mask: Tensor | None
) -> tuple[tuple[Tensor, ...], Callable[..., Attended]]:
    names, inputs = zip(*[("", x), *layer.named_parameters()], strict=True)

    def call(tokens: Tensor, *state: Tensor) -> Attended:
        with seeded(5):
            named = dict(zip(names[1:], state, strict=False))
            return functional_call(layer, named, (tokens, tokens, mask))

    return inputs, call


def _errors(
    inputs: tuple[Tensor, ...], call: Callable[..., Attended], mask: Tensor | None
) -> Iterator[float]:
    # Relative to the norm of the gradient, or to 0.001 of the largest norm where that is more;
    # infinite where it is not a number.
    gradients = torch.autograd.grad(probe_loss(call(*inputs), mask), inputs, materialize_grads=True)
    norms = torch.stack([gradient.norm() for gradient in gradients])
    for index, gradient in enumerate(gradients):
        direction = torch.randn_like(gradient)
        with torch.no_grad():
            shifted = (
                [*inputs[:index], inputs[index] + step * direction, *inputs[index + 1 :]]
                for step in (STEP, -STEP)
            )
            above, below = (probe_loss(call(*each), mask) for each in shifted)
        expected = (above - below) / (2 * STEP)
        error = (expected - (gradient * direction).sum()).abs()
        relative = error / norms[index].clamp_min(1e-3 * norms.max().item())
        yield relative.nan_to_num(float("inf"), float("inf")).item()


def check_second(configuration: Configuration) -> Outcome:
    """Gradients with `create_graph` equal those without, their derivatives finite differences."""
    # A layer whose gradients can be differentiated once raises an error instead.
    layer, x = configuration.layer(max_len=CREATED), random_tokens(1, CREATED).requires_grad_()
    inputs, call = _function(layer, x, None)

    def gradients(tokens: Tensor, graph: bool = False) -> tuple[Tensor, ...]:
        loss, of = probe_loss(call(tokens, *inputs[1:])), (tokens, *inputs[1:])
        return torch.autograd.grad(loss, of, materialize_grads=True, create_graph=graph)

    first, again = gradients(x), gradients(x, graph=True)
    error = relative_error(*(torch.cat([g.flatten() for g in of]) for of in (again, first)))
    outcome = Outcome(error <= ROUNDING, f"first gradients differ by {error:.1g}")
    direction = torch.randn_like(x)
    try:
        total = (again[0] * direction).sum()
        second = torch.autograd.grad(total, inputs, materialize_grads=True)
    except Exception as error:
        return outcome._replace(detail=f"{outcome.detail}; second: {in_one_line(error)}")
    above, below = (gradients(x + step * direction) for step in (STEP, -STEP))
    expected = [(more - less) / (2 * STEP) for more, less in zip(above, below, strict=True)]
    error = relative_error(*(torch.cat([g.flatten() for g in of]) for of in (second, expected)))
    detail = f"{outcome.detail}, second ones from finite differences by {error:.1g}"
    return Outcome(outcome.passed and error <= BOUND, detail)


def check_precisions(configuration: Configuration) -> Outcome:
    """Gradients in fp32, in bf16 and under autocast agree with those in fp64."""
    # Compared is the relative error that a quarter of the rows of a parameter exceeds.
    mode, details, passed = not configuration.traits.stochastic, [], True
    for setting, _, bound in LOW_PRECISIONS:
        pair = setting._replace(training=mode), Setting(training=mode)
        errors = [
            _row_error(actual, expected)
            for mask in (None, padding_masks()[1])
            for actual, expected in zip(
                *(_results(configuration, each, mask)[1:] for each in pair), strict=True
            )
        ]
        passed &= max(errors) <= bound
        details.append(f"{setting.precision} differs by {max(errors):.1g}")
    return Outcome(passed, ", ".join(details))


def check_half(configuration: Configuration) -> Outcome:
    """fp16 modules, and autocast to fp16, agree with fp32 at inputs of 30 standard deviations."""
    # It passes if results in fp32 exceed the largest number of fp16. The effect of tokens that are
    # rounded to fp16 bounds the error, if it is large.
    mode, details, passed = not configuration.traits.stochastic, [], True
    exact = Setting(training=mode, dtype=torch.float32)
    output, *gradients = _results(configuration, exact, scale=LARGE)
    if max(part.abs().max() for part in (output, *gradients)) > torch.finfo(torch.float16).max:
        return Outcome(True, "results in fp32 exceed the largest number of fp16")
    expected = output, torch.cat([gradient.flatten() for gradient in gradients])

    def errors(setting: Setting, rounding: float = 0.0) -> list[float]:
        actual, *others = _results(configuration, setting, scale=LARGE, rounding=rounding)
        pair = actual, torch.cat([gradient.flatten() for gradient in others])
        return [*map(relative_error, pair, expected)]

    bounds = [
        max(bound, HALF_FACTOR * error)
        for bound, error in zip(HALF_BOUNDS, errors(exact, HALF_ROUNDING), strict=True)
    ]
    for dtype, autocast in ((torch.float16, None), (torch.float32, torch.float16)):
        setting = exact._replace(dtype=dtype, autocast=autocast)
        found = errors(setting)
        # A bound may be infinite, an error may not.
        within = (error <= bound for error, bound in zip(found, bounds, strict=True))
        passed &= all(within) and float("inf") not in found
        text = f"{setting.precision} differs by {found[0]:.1g}, gradients {found[1]:.1g}"
        details.append(text + cause(partial(errors, setting)) * (float("inf") in found))
    return Outcome(passed, "; ".join(details))


def check_autocast(configuration: Configuration) -> Outcome:
    """A backward pass inside of autocast gives the gradients of one outside."""
    mode, details, passed = not configuration.traits.stochastic, [], True
    for autocast in (torch.bfloat16, torch.float16):
        setting = Setting(training=mode, dtype=torch.float32, autocast=autocast)
        pairs = (
            [_results(configuration, setting, mask, inside=inside)[1:] for inside in (True, False)]
            for mask in (None, padding_masks()[1])
        )
        errors = (
            relative_error(inside, outside)
            for pair in pairs
            for inside, outside in zip(*pair, strict=True)
            if outside.isfinite().all()  # of others nothing can be told
        )
        error = max(errors, default=0.0)
        passed &= error <= AUTOCAST_BOUND
        details.append(f"{setting.precision} differs by {error:.1g}")
    return Outcome(passed, ", ".join(details))


def _results(
    configuration: Configuration, setting: Setting, mask: Tensor | None = None, *,
    scale: float = 1.0, rounding: float = 0.0, inside: bool = False,
) -> list[Tensor]:  # fmt: skip
    # `inside`: whether the backward pass is inside of autocast, too; `rounding`: of the tokens.
    layer, factor = configuration.layer_for(setting), 1 + rounding * random_tokens(3, seed=4)
    x = (scale * random_tokens(3) * factor).to(setting.dtype).requires_grad_()
    tokens, losses = setting.run(layer, x, mask)
    # Per root of the number of entries, so that gradients fit fp16.
    loss = probe_loss(Attended(tokens.double(), losses), mask) / tokens.numel() ** 0.5
    with setting.autocast_region() if inside else nullcontext():
        inputs = [x, *layer.parameters()]
        gradients = torch.autograd.grad(loss, inputs, materialize_grads=True)
    return [part.double() for part in (tokens, *gradients)]


def _row_error(actual: Tensor, expected: Tensor) -> float:
    # Infinite where a gradient is not finite: no comparison with NaN is true.
    if not actual.isfinite().all():
        return float("inf")
    actual, expected = (
        part.double().reshape(-1, part.shape[-1] if part.ndim > 1 else part.numel())
        for part in (actual, expected)
    )
    norms = expected.norm(dim=1)
    rows = norms > 1e-2 * norms.max()
    if not rows.any():
        return 0.0
    errors = (actual - expected).norm(dim=1)[rows] / norms[rows]
    return errors.quantile(0.75).item()
