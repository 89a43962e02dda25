"""Optimisers by the name in a recipe, built from a model and its recipe."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness.records.spec import TrainSpec
from zoo.contract import Attention

# Newton-Schulz step a X + b (X X^T) X + c (X X^T)^2 X (Jordan et al., 2024, "Muon").
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
MOMENTUM = 0.95
RMS = 0.2  # Updates are scaled to the root mean square of AdamW's
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal, for matrices.

    Jordan et al., 2024, with the scale and the decoupled decay of Liu et al., 2025, "Muon is
    Scalable for LLM Training", arXiv 2502.16982:

        M = mu M + G,    O = NewtonSchulz(G + mu M),    W = W - lr (0.2 sqrt(max(r, c)) O + decay W)

    for a matrix of r rows and c columns, the last two dimensions of a parameter: rates are those of
    AdamW. Matrices of one shape are computed together in fp32; `torch.optim.Muon` computes them one
    by one in bf16, which takes 14 times as long on a CPU.

    Matrices of a `packed` group hold several square projections, which are orthogonalised alone.
    """

    def __init__(
        self, params: Any, lr: float, weight_decay: float = 0.0, momentum: float = MOMENTUM
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "packed": False}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        updates = [*self._updates()]
        by_shape = defaultdict[torch.Size, list[int]](list)
        for index, (_, update, _) in enumerate(updates):
            by_shape[update.shape[-2:]].append(index)
        for indices in by_shape.values():
            whole = torch.cat([updates[index][1] for index in indices])
            counts = [len(updates[index][1]) for index in indices]
            scale = RMS * math.sqrt(max(whole.shape[-2:]))
            for index, part in zip(indices, orthogonal(whole).split(counts), strict=True):
                weight, _, group = updates[index]
                weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(part.reshape(weight.shape), alpha=-group["lr"] * scale)

    def _updates(self) -> Iterator[tuple[Tensor, Tensor, dict[str, Any]]]:
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].mul_(group["momentum"]).add_(weight.grad)
                update = weight.grad.add(state["momentum"], alpha=group["momentum"])
                rows, columns = update.shape[-2:]
                rows = columns if group["packed"] and rows % columns == 0 else rows
                yield weight, update.reshape(-1, rows, columns), group


def orthogonal(x: Float[Tensor, "k r c"], steps: int = 5) -> Float[Tensor, "k r c"]:
    # U S V^T becomes about U V^T, with singular values of 0.7 to 1.2.
    x, is_tall = x.float(), x.shape[-2] > x.shape[-1]
    x = x.mT if is_tall else x
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Combined:
    def __init__(self, *optimisers: torch.optim.Optimizer) -> None:
        self.optimisers = optimisers

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for optimiser in self.optimisers for group in optimiser.param_groups]

    def step(self) -> None:
        for optimiser in self.optimisers:
            optimiser.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): optimiser.state_dict() for i, optimiser in enumerate(self.optimisers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for i, optimiser in enumerate(self.optimisers):
            optimiser.load_state_dict(state[str(i)])


def parameter_groups(model: nn.Module, spec: TrainSpec) -> list[dict[str, Any]]:
    if spec.decay == "all":
        return [{"params": [*model.parameters()]}]
    undecayed = _undecayed(model, taps=spec.decay == "matrices")
    groups: list[dict[str, Any]] = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for name, parameter in model.named_parameters():
        groups[parameter.ndim < 2 or name in undecayed]["params"].append(parameter)
    return groups


def _undecayed(model: nn.Module, *, taps: bool) -> set[str]:
    return {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name in (*getattr(module, "undecayed", ()), *taps_of(module) * taps)
    }


def taps_of(module: nn.Module) -> tuple[str, ...]:
    if isinstance(module, CONVOLUTIONS):
        return ("weight",) * (module.groups == module.in_channels == module.out_channels)
    return ("taps",) * isinstance(getattr(module, "taps", None), nn.Parameter)


def _adamw(groups: Any, spec: TrainSpec) -> torch.optim.Optimizer:
    # Loshchilov and Hutter, 2019, arXiv 1711.05101.
    return torch.optim.AdamW(
        groups, lr=spec.lr, betas=spec.betas, eps=spec.eps, weight_decay=spec.weight_decay,
        fused=True,
    )  # fmt: skip


def radam(model: nn.Module, spec: TrainSpec) -> torch.optim.Optimizer:
    # Liu et al., 2020, arXiv 1908.03265, with decoupled decay.
    return torch.optim.RAdam(
        parameter_groups(model, spec), lr=spec.lr, betas=spec.betas, eps=spec.eps,
        weight_decay=spec.weight_decay, decoupled_weight_decay=True,
    )  # fmt: skip


def muon(model: Any, spec: TrainSpec) -> Combined:
    # AdamW trains all but the matrices of `model.layers` from `muon_from` on.
    others, groups = _undecayed(model, taps=True), parameter_groups(model, spec)
    packed = {id(p) for layer in model.layers.modules() if isinstance(layer, Attention)
              for p in layer.parameters()}  # fmt: skip
    matrices = {
        id(weight): weight
        for name, weight in model.named_parameters()
        if weight.ndim >= 2 and min(weight.shape[-2:]) >= spec.muon_from and name not in others
    }
    matrices = {id(w): w for w in model.layers.parameters() if id(w) in matrices}
    of_muon = [
        {"params": [w for key, w in matrices.items() if (key in packed) == is_packed],
         "packed": is_packed}
        for is_packed in (True, False)
    ]  # fmt: skip
    of_adamw = [
        {**group, "params": [p for p in group["params"] if id(p) not in matrices]}
        for group in groups
    ]
    return Combined(Muon(of_muon, spec.lr, spec.weight_decay), _adamw(of_adamw, spec))


OPTIMISERS: Mapping[str, Callable[[nn.Module, TrainSpec], torch.optim.Optimizer | Combined]] = {
    "adamw": lambda model, spec: _adamw(parameter_groups(model, spec), spec),
    "radam": radam,
    "muon": muon,
}
