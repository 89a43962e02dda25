"""Fresh layers of Primal-Attention have the published initialisation, and no other.

Each statistic is also taken with orthonormal columns head by head, which it must reject.
"""

import pytest
import torch

from tests.zoo.primal_oracle import make_columns_orthonormal
from zoo.contract import Size
from zoo.variants.primal import Primal

RANK = 30
FORMS = pytest.mark.parametrize("form", ["dependent", "independent", "causal"])


def fresh(form: str, columns: bool = False) -> Primal:
    """A layer of the published Image runs; `columns` for orthonormal columns."""
    size = Size(dim=64, heads=2, max_len=1024, causal=form == "causal", dropout=0.0)
    layer = Primal(size, rank=RANK, projections="auto" if form == "causal" else form)
    if columns:
        make_columns_orthonormal(layer)
    return layer


def grams_of_heads(layer: Primal) -> torch.Tensor:
    """Inner products of the heads' tensors, of W_e and of W_r: (2, H, H)."""
    heads = layer.directions.detach().flatten(2)
    return heads @ heads.mT


@FORMS
def test_the_whole_tensor_of_each_head_has_norm_one(form):
    norms = grams_of_heads(fresh(form)).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(norms, torch.ones(2, 2), rtol=1e-5, atol=0)
    former = grams_of_heads(fresh(form, columns=True)).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(former, torch.full((2, 2), float(RANK)), rtol=1e-5, atol=0)


@FORMS
def test_heads_are_orthogonal_to_each_other(form):
    assert grams_of_heads(fresh(form))[:, 0, 1].abs().max() < 1e-5
    assert grams_of_heads(fresh(form, columns=True))[:, 0, 1].abs().min() > 1e-2


@FORMS
def test_columns_of_a_head_are_neither_of_norm_one_nor_orthonormal(form):
    norms = fresh(form).directions.norm(dim=2) * RANK**0.5
    assert 0.6 < norms.min() < norms.max() < 1.4
    assert (fresh(form, columns=True).directions.norm(dim=2) * RANK**0.5).min() > 5


@FORMS
def test_the_query_side_and_the_key_side_are_drawn_independently(form):
    w_e, w_r = fresh(form).directions.detach()
    assert (w_e - w_r).norm() == pytest.approx(2.0, rel=0.1)


def test_lambda_is_uniform_between_zero_and_one():
    torch.manual_seed(3)
    scales = torch.cat([fresh("independent").scales.detach().flatten() for _ in range(20)])
    assert 0 <= scales.min() < 0.01
    assert 0.99 < scales.max() < 1
    assert scales.mean() == pytest.approx(1 / 2, abs=0.03)
    assert scales.var() == pytest.approx(1 / 12, abs=0.01)


@FORMS
def test_the_objective_starts_small(form):
    x = torch.nn.functional.layer_norm(torch.randn(4, 1024, 64), (64,))
    assert fresh(form)(x, x, None).losses["ksvd"] < 0.02
    if form == "dependent":
        assert fresh(form, columns=True)(x, x, None).losses["ksvd"] > 1
