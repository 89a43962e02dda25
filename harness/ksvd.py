"""Does training with the KSVD loss approach the exact KSVD?

The scores of a layer of Primal-Attention span a subspace for each side. It is compared with the
first s singular vectors of the kernel matrix to which the objective J belongs (statement 15 of
`docs/primal.md`): the alignment is the mean squared cosine of their principal angles. `task` is to
reproduce the output of a layer of softmax on the same tokens. `reconstruction` is a control, whose
minimum is at the exact subspaces: 1 - |Q_e^T K Q_r|^2 / |K|^2, Q orthonormal bases of the scores.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from harness import weights
from harness.approximation import generated_inputs, projected, scale_logits
from harness.layer_inputs import Inputs, attentions, evenly_spaced, recorded
from harness.model import build_model
from harness.plan import Plan
from harness.records.ksvd import KsvdCurve, KsvdState, Loss, Trained
from zoo import ksvd
from zoo.contract import Unsupported
from zoo.ksvd_attention import KsvdAttention
from zoo.library import create

POINTS = 24
"""Number of recorded steps, approximately; they are evenly spaced in the logarithm."""

LOGITS = 2.0
"""The standard deviation of the logits of softmax in the task."""


class Setting(NamedTuple):
    """A layer, its input, and how it is trained.

    Attributes:
        options: of `primal`, without its trace.
        dim: model width.
        heads: number of heads.
        tokens: length of a sequence.
        samples: number of sequences; all steps use the same ones.
        steps: number of steps of Adam.
        lr: learning rate of Adam.
    """

    options: Mapping[str, Any]
    dim: int
    heads: int
    tokens: int
    samples: int
    steps: int
    lr: float


class Bases(NamedTuple):
    """Scores and singular vectors of one call, in a common basis of each side.

    Axis letters: `c` the two sides (query, key), `f` and `g` coordinates in the span of the
    features, `s` rank, `r` singular vectors.

    Attributes:
        scores: orthonormal bases of the scores.
        singular: the first singular vectors of the kernel matrix.
        kernel: the kernel matrix.
    """

    scores: Float[Tensor, "b c h f s"]
    singular: Float[Tensor, "b c h f r"]
    kernel: Float[Tensor, "b h f g"]


def training_curves(
    setting: Setting,
    inputs: Sequence[str],
    trained: Sequence[Trained],
    traces: Sequence[str],
    losses: Sequence[Loss],
    seeds: Sequence[int],
) -> Iterator[KsvdCurve]:
    """A curve for each combination, on generated tokens (`harness.approximation.KINDS`).

    Raises:
        UserError: an option is unknown, or has a wrong value.
    """
    for kind, which, trace, loss, seed in product(inputs, trained, traces, losses, seeds):
        torch.manual_seed(0)
        x = generated_inputs(kind, setting.samples, setting.tokens, setting.dim).double()
        target = _target(x, setting)
        torch.manual_seed(seed)
        layer = _layer(setting, trace)
        states = _train(layer, x, target, loss, which, setting)
        yield _curve(layer, kind, which, loss, seed, len(x), x.shape[1], states)


def run_curves(plan: Plan, files: Mapping[int, Path], samples: int) -> Iterator[KsvdCurve]:
    """A curve for each layer of Primal-Attention of a run, at its saved weights, on dev.

    Args:
        plan: of the run.
        files: its weights by step.
        samples: examples of dev, evenly spaced.

    Raises:
        Unsupported: the run has no such layer, or its weights differ from token to token.
    """
    model, dev = build_model(plan.spec, plan.task).eval(), plan.data.splits["dev"]
    layers = {
        number: layer
        for number, layer in enumerate(attentions(model))
        if isinstance(layer, KsvdAttention)
    }
    name = plan.spec.attention
    if not layers:
        raise Unsupported(f"no layer of the run of {name} is primal; give a run of primal")
    states: dict[int, list[KsvdState]] = {number: [] for number in layers}
    longest = 1
    for step, file in files.items():
        weights.load(file, model)
        with torch.no_grad(), recorded(model) as calls:
            for example in evenly_spaced(dev, samples):
                model(dev.gather(example[None]))
            for number, layer in layers.items():
                xs = [x for call in calls[number :: len(attentions(model))] for x in _real(call)]
                each = [state_of(layer, x, step) for x in xs]
                states[number].append(_mean(each))
                longest = max(longest, *(x.shape[1] for x in xs))
    for number, layer in layers.items():
        inputs = f"{plan.spec.task.name} {name}, layer {number + 1}"
        seed, count = plan.spec.seed, min(samples, len(dev))
        yield _curve(layer, inputs, "run", "run", seed, count, longest, states[number])


def objective(layer: KsvdAttention, x: Float[Tensor, "b n d"]) -> Float[Tensor, "b h"]:
    """J of each sample and head; the layer's loss is eta times the square of their mean."""
    phi, directions = layer.problem(x)
    e, r = (phi @ directions).unbind(1)
    energy = ksvd.energy_of_scores(e, r, layer.roots()) / x.shape[1]
    return energy - ksvd.trace(directions)


def bases(layer: KsvdAttention, x: Float[Tensor, "b n d"]) -> Bases:
    """Scores and the first s singular vectors, as coordinates in the span of the features.

    The features are constants: gradients are those of the weights alone.
    """
    phi, directions = layer.problem(x)
    phi = phi.detach()
    # K = Phi_q Phi_k^T = Q_q (R_q R_k^T) Q_k^T: its singular vectors are Q times those of a small
    # matrix, and scores are Q R W.
    r = torch.linalg.qr(phi)[1]
    kernel = r[:, 0] @ r[:, 1].mT
    u, _, vt = torch.linalg.svd(kernel)
    rank = min(directions.shape[-1], layer.features, x.shape[1])
    singular = torch.stack([u, vt.mT], dim=1)[..., :rank]
    return Bases(torch.linalg.qr(r @ directions)[0], singular, kernel)


def alignments(layer: KsvdAttention, x: Float[Tensor, "b n d"]) -> tuple[float, float]:
    """The alignments of the scores of queries and of those of keys, means over samples and heads.

    An alignment is the mean squared cosine of the principal angles, in [0, 1].
    """
    scores, singular, _ = bases(layer, x)
    squares = (scores.mT @ singular).square().sum((-2, -1)) / singular.shape[-1]
    left, right = squares.mean((0, 2)).clamp_max(1).tolist()
    return left, right


def reconstruction(layer: KsvdAttention, x: Float[Tensor, "b n d"]) -> Float[Tensor, ""]:
    """The share of the kernel's squared norm outside the spans of the scores.

    It is a mean over samples and heads, in [0, 1].
    """
    scores, _, kernel = bases(layer, x)
    within = scores[:, 0].mT @ kernel @ scores[:, 1]
    shares = within.square().sum((-2, -1)) / kernel.square().sum((-2, -1))
    return 1 - shares.mean()


def state_of(
    layer: KsvdAttention, x: Float[Tensor, "b n d"], step: int, task: float | None = None
) -> KsvdState:
    """The objective and the alignments of a layer on tokens without padding."""
    with torch.no_grad():
        left, right = alignments(layer, x)
        mean = objective(layer, x).mean().item()
    return KsvdState(step=step, objective=mean, left=left, right=right, task=task)


def recorded_steps(steps: int) -> list[int]:
    """0, and about `POINTS` more steps up to the last."""
    return sorted({0, *(round(steps ** (i / POINTS)) for i in range(POINTS + 1))})


def _layer(setting: Setting, trace: str) -> KsvdAttention:
    layer = create(
        "primal", dim=setting.dim, heads=setting.heads, max_len=setting.tokens, trace=trace,
        **setting.options,
    )  # fmt: skip
    if not isinstance(layer, KsvdAttention):
        raise TypeError(f"{layer.name()} is not Primal-Attention")
    return layer.double()


def _target(x: Tensor, setting: Setting) -> Tensor:
    """The output of a new layer of softmax, of mean 0 over the tokens and variance 1."""
    softmax = create("softmax", dim=setting.dim, heads=setting.heads, max_len=setting.tokens)
    reference = projected(softmax.double())
    scale_logits(reference, x, LOGITS)
    with torch.no_grad():
        output = reference(x).tokens
    output = output - output.mean((0, 1))
    return output / output.square().mean().sqrt()


def _train(
    layer: KsvdAttention, x: Tensor, target: Tensor, loss: Loss, trained: Trained, setting: Setting
) -> list[KsvdState]:
    layer.query_key.requires_grad_(trained == "all")
    parameters = [one for one in layer.parameters() if one.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=setting.lr)
    wanted, states = {*recorded_steps(setting.steps)}, []
    for step in range(setting.steps + 1):
        output = layer(x)
        task = (output.tokens - target).square().mean()
        if step in wanted:
            states.append(state_of(layer, x, step, task.item()))
        if step == setting.steps:
            break
        terms = {"task": task, **output.losses}
        if loss == "reconstruction":
            terms = {loss: reconstruction(layer, x)}
        optimiser.zero_grad()
        torch.stack([terms[name] for name in loss.split("+")]).sum().backward()
        optimiser.step()
    return states


def _real(call: Inputs) -> Iterator[Tensor]:
    """The real tokens of each sample, (1, n, d) each."""
    for number, x in enumerate(call.x):
        yield x[None] if call.mask is None else x[None, call.mask[number]]


def _mean(states: Sequence[KsvdState]) -> KsvdState:
    names = ("objective", "left", "right")
    means = {name: fmean(getattr(one, name) for one in states) for name in names}
    return states[0].model_copy(update=means)


def _curve(
    layer: KsvdAttention,
    inputs: str,
    trained: Trained,
    loss: Loss,
    seed: int,
    samples: int,
    tokens: int,
    states: Sequence[KsvdState],
) -> KsvdCurve:
    return KsvdCurve(
        inputs=inputs, trained=trained, trace=layer.trace, loss=loss, seed=seed, samples=samples,
        tokens=tokens, heads=layer.size.heads, width=layer.features,
        rank=layer.directions.shape[-1], states=tuple(states),
    )  # fmt: skip
