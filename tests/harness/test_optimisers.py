import pytest
import torch
from torch import nn

from harness.optimisers import Muon

SHAPES = ((5, 3), (3, 5), (4, 4), (4, 4), (12, 4))


def matrices():
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def gradients(step):
    generator = torch.Generator().manual_seed(step + 1)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def train(optimiser, weights, steps=3):
    for step in range(steps):
        for weight, gradient in zip(weights, gradients(step), strict=True):
            weight.grad = gradient.clone()
        optimiser.step()
    return weights


def test_muon_is_that_of_pytorch_but_for_bf16():
    ours, theirs = matrices(), matrices()
    train(Muon(ours, lr=0.01, weight_decay=0.1), ours)
    train(torch.optim.Muon(theirs, lr=0.01, weight_decay=0.1, momentum=0.95,
                           adjust_lr_fn="match_rms_adamw"), theirs)  # fmt: skip
    for start, a, b in zip(matrices(), ours, theirs, strict=True):
        change = (b - start).norm()
        assert change > 0.01 and (a - b).norm() < 0.03 * change


@pytest.mark.parametrize("least", [0, 5])
def test_muon_has_the_matrices_of_layers_and_adamw_all_else(tiny, prepare, least):
    trainer = prepare(tiny("ssd", optimiser="muon", muon_from=least))
    own, other = ({id(p) for group in of.param_groups for p in group["params"]}
                  for of in trainer.optimizer.optimisers)  # fmt: skip
    matrices = {id(p) for name, p in trainer.model.layers.named_parameters() if p.ndim > 1
                if min(p.shape[-2:]) >= least and "taps" not in name}  # fmt: skip
    assert own == matrices and own | other == {id(p) for p in trainer.model.parameters()}
    assert not own & other


def test_an_optimiser_continues_from_its_state(tiny, prepare):
    spec = tiny(optimiser="muon", settings={"model": {"dropout": 0.0}})
    whole, first = prepare(spec), prepare(spec)
    for step in range(4):
        whole.step(step)
    for step in range(2):
        first.step(step)
    second = prepare(spec)
    second.model.load_state_dict(first.model.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    for step in range(2, 4):
        second.step(step)
    for a, b in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
