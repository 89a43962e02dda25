"""Fresh layers of Primal-Attention have the published initialisation, and no other.

Each statistic is also taken with orthonormal columns head by head, which it must reject.
"""

import pytest
import torch

from tests.zoo.primal_oracle import make_columns_orthonormal
from zoo.contract import Size
from zoo.variants.primal import Primal

RANK = 30


def fresh(form: str) -> Primal:
    """A layer of the published Image runs."""
    size = Size(dim=64, heads=2, max_len=1024, causal=form == "causal", dropout=0.0)
    return Primal(size, rank=RANK, projections="auto" if form == "causal" else form)


@pytest.mark.parametrize("form", ["dependent", "independent", "causal"])
def test_the_whole_tensor_of_each_head_has_norm_one_and_the_objective_starts_small(form):
    layer, x = fresh(form), torch.nn.functional.layer_norm(torch.randn(4, 1024, 64), (64,))
    w_e, w_r = layer.directions.detach().clone()
    assert (w_e - w_r).norm() == pytest.approx(2.0, rel=0.1)  # drawn independently
    for columns in (False, True):
        if columns:
            make_columns_orthonormal(layer)
        heads = layer.directions.detach().flatten(2)
        grams = heads @ heads.mT
        norms = torch.full((2, 2), float(RANK) if columns else 1.0)
        torch.testing.assert_close(grams.diagonal(dim1=1, dim2=2), norms, rtol=1e-5, atol=0)
        # Heads are orthogonal to each other; columns are neither of norm one nor orthonormal.
        assert bool(grams[:, 0, 1].abs().max() < 1e-5) is not columns
        of_columns = layer.directions.norm(dim=2) * RANK**0.5
        assert bool(of_columns.min() > 0.6 and of_columns.max() < 1.4) is not columns
        loss = layer(x, x, None).losses["ksvd"]
        assert loss > 1 if columns and form == "dependent" else columns or loss < 0.02


def test_lambda_is_uniform_between_zero_and_one():
    torch.manual_seed(3)
    scales = torch.cat([fresh("independent").scales.detach().flatten() for _ in range(20)])
    assert 0 <= scales.min() < 0.01 and 0.99 < scales.max() < 1
    assert scales.mean() == pytest.approx(1 / 2, abs=0.03)
    assert scales.var() == pytest.approx(1 / 12, abs=0.01)
