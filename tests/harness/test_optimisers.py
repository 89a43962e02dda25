import pytest
import torch
from torch import nn

from harness.optimisers import OPTIMISERS, Combined, Muon, orthogonal

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


def test_packed_projections_are_orthogonal_each_alone():
    (*_, packed) = matrices()
    parts = [nn.Parameter(part.detach().clone()) for part in packed.split(4)]
    (*_, gradient) = gradients(0)
    packed.grad = gradient
    for part, of_part in zip(parts, gradient.split(4), strict=True):
        part.grad = of_part
    Muon([{"params": [packed], "packed": True}], lr=0.1).step()
    Muon(parts, lr=0.1).step()
    torch.testing.assert_close(packed, torch.cat(parts))


@pytest.mark.parametrize("shape", [(2, 6, 4), (2, 4, 6), (1, 5, 5)], ids=str)
def test_singular_values_become_about_one_and_vectors_stay(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(x, full_matrices=False)
    found = u.mT @ orthogonal(x) @ v.mT
    values = found.diagonal(dim1=-2, dim2=-1)
    assert values.min() > 0.5 and values.max() < 1.3
    torch.testing.assert_close(found, torch.diag_embed(values), atol=1e-4, rtol=0)


def test_muon_has_the_matrices_of_layers_and_adamw_all_else(tiny, prepare):
    spec = tiny("primal", optimiser="muon", decay="matrices")
    trainer = prepare(spec)
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    own, other = trainer.optimizer.optimisers
    of_muon = {names[id(p)]: g["packed"] for g in own.param_groups for p in g["params"]}
    of_adamw = [names[id(p)] for group in other.param_groups for p in group["params"]]
    assert sorted([*of_muon, *of_adamw]) == sorted(names.values())
    assert of_muon["layers.0.attention.query_key.weight"]
    assert not of_muon["layers.0.feed_forward.0.weight"]
    assert "layers.0.attention.directions" in of_muon
    assert {"token.weight", "head.0.weight", "layers.0.attention.scales"} <= {*of_adamw}
    assert all(not name.endswith(("bias", "taps", "norm.weight")) for name in of_muon)


@pytest.mark.parametrize("least", [0, 5])
def test_adamw_has_matrices_whose_smaller_side_is_below_that_of_muon(tiny, prepare, least):
    trainer = prepare(tiny("ssd", optimiser="muon", muon_from=least))
    names = {id(p): name for name, p in trainer.model.named_parameters()}
    own, _ = trainer.optimizer.optimisers
    sides = {names[id(p)]: min(p.shape[-2:]) for g in own.param_groups for p in g["params"]}
    assert min(sides.values()) >= least
    assert ("layers.0.attention.decay.weight" in sides) == (least == 0)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_continues_from_its_state(tiny, prepare, name):
    spec = tiny(optimiser=name, settings={"model": {"dropout": 0.0}})
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


def test_zeroed_gradients_are_none(tiny, prepare):
    trainer = prepare(tiny(optimiser="muon"))
    assert isinstance(trainer.optimizer, Combined)
    trainer.step(0)
    assert all(parameter.grad is None for parameter in trainer.model.parameters())
