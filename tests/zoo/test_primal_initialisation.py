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
    for columns in (False, True):
        layer = fresh(form, columns)
        grams = grams_of_heads(layer)
        norms = grams.diagonal(dim1=1, dim2=2)
        scale = float(RANK) if columns else 1.0
        torch.testing.assert_close(norms, torch.full((2, 2), scale), rtol=1e-5, atol=0)
        # Heads are orthogonal to each other; columns are neither of norm one nor orthonormal.
        assert bool(grams[:, 0, 1].abs().max() < 1e-5) is not columns
        of_columns = layer.directions.norm(dim=2) * RANK**0.5
        assert bool(of_columns.min() > 0.6 and of_columns.max() < 1.4) is not columns


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
