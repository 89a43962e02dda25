"""The comparison of Primal-Attention with the exact KSVD: its parts by their definitions."""

import pandas as pd
import pytest
import torch

from harness.studies import ksvd
from harness.studies.ksvd import Ksvd, alignments, objective, reconstruction
from tests.conftest import ROOT
from tests.harness.specs import axes_of
from tests.zoo.primal_oracle import positions
from zoo.library import create
from zoo.variants.primal_forms import problem

SETTING = Ksvd(rank=2, dim=8, tokens=16, steps=100, lr=0.03)


def layer_of(variant="primal", **options):
    return create(variant, dim=8, heads=2, max_len=12, **{"rank": 2, **options}).double()


@pytest.mark.parametrize(("variant", "options"), [
    ("primal", {"projections": "dependent", "rank_multi": 3, "trace": "data"}),
    ("primal", {"projections": "independent", "trace": "weights"}), ("primal-moments", {}),
])  # fmt: skip
def test_the_loss_is_eta_times_the_square_of_the_mean_objective(variant, options):
    layer = layer_of(variant, eta=0.7, **options)
    x = torch.randn(3, 12, 8).double()
    expected = 0.7 * objective(layer, x).mean().square()
    torch.testing.assert_close(layer(x).losses["ksvd"], expected, rtol=1e-10, atol=0)


def test_the_alignment_compares_the_scores_with_the_singular_vectors_of_the_whole_kernel():
    x = torch.randn(1, 12, 8).double()
    for trace in ("weights", "data"):
        torch.manual_seed(2)
        layer = layer_of(trace=trace, rank_multi=3)
        found = {"left": [], "right": []}
        for head, part in enumerate((slice(0, 4), slice(4, 8))):
            sampled = x[0, positions(12, 6), part]
            with torch.no_grad():
                q, k = (u[:, part] for u in layer.query_key(x[0]).chunk(2, dim=1))
                phi_q, phi_k = (u / u.norm(dim=1, keepdim=True) for u in (q, k))
                e, r = (
                    phi @ sampled.T @ layer.directions[side, head]
                    for side, phi in enumerate((phi_q, phi_k))
                )
            middle = sampled.T @ sampled if trace == "weights" else torch.eye(4).double()
            u, _, vt = torch.linalg.svd(phi_q @ middle @ phi_k.T)
            for side, scores, basis in (("left", e, u[:, :2]), ("right", r, vt[:2].T)):
                cosines = torch.linalg.svdvals(torch.linalg.qr(scores)[0].T @ basis)
                found[side].append(cosines.square().mean())
        expected = [torch.stack(found[side]).mean().item() for side in ("left", "right")]
        assert alignments(layer, x) == pytest.approx(expected, rel=1e-8)


def test_at_the_exact_subspaces_the_control_is_the_rest_of_the_spectrum():
    layer = create("primal", dim=4, heads=1, max_len=12, rank=2, projections="independent").double()
    x = torch.randn(1, 12, 4).double()
    phi_q, phi_k = problem(layer, x)[0][0, :, 0].detach()
    u, s, vt = torch.linalg.svd(phi_q @ phi_k.T)
    mixed = torch.randn(2, 2).double()
    with torch.no_grad():
        layer.directions.copy_(
            torch.stack([phi_k.T @ vt[:2].T @ mixed, phi_q.T @ u[:, :2]])[:, None]
        )
    assert alignments(layer, x) == pytest.approx((1, 1))
    expected = (s[2:] ** 2).sum() / (s**2).sum()
    assert reconstruction(layer, x).item() == pytest.approx(expected.item())


@pytest.mark.slow
def test_the_ksvd_loss_reaches_zero_where_it_is_and_the_control_reaches_the_subspaces():
    curves = {
        loss: pd.DataFrame(ksvd.training(SETTING, "weights", "data", loss, 1))
        for loss in ksvd.LOSSES
    }
    numbers = ["objective", "left_alignment", "right_alignment", "task_loss"]
    assert len({tuple(curve[numbers].iloc[0]) for curve in curves.values()}) == 1
    ends, start = {loss: curve.iloc[-1] for loss, curve in curves.items()}, curves["task"].iloc[0]
    assert ends["ksvd"].objective ** 2 < 1e-4 < 1e-2 < start.objective**2
    assert (
        max(ends["ksvd"][numbers[1:3]]) < 0.8 and min(ends["reconstruction"][numbers[1:3]]) > 0.95
    )
    assert ends["task"].task_loss < start.task_loss / 2 and ends["task"].objective ** 2 > 1e-2
    both = ends["task+ksvd"]
    assert both.task_loss < start.task_loss / 2 and both.objective**2 < 1e-2
    assert curves["task"]["step"].tolist() == ksvd.recorded_steps(100)
    assert set(curves["task"]["random_alignment"]) == {0.25}


def test_the_figure_has_means_and_ranges_over_the_seeds():
    frame = pd.DataFrame([
        {"inputs": "random", "trained": "weights", "trace": "data", "left_alignment": 0.2,
         "right_alignment": 0.4, "random_alignment": 0.25, "task_loss": 0.5, "loss": loss,
         "seed": seed, "step": step, "objective": objective / (1 + step)}
        for loss, seed, objective in (("ksvd", 0, 10.0), ("ksvd", 1, -30.0), ("task", 0, 0.0))
        for step in (0, 1, 9)
    ])  # fmt: skip
    squares, aligned = (axes_of(panel) for panel in Ksvd.panels(frame))
    assert [*squares.lines[0].get_ydata()] == [500, 125, 5]
    # A zero is drawn as the smallest value of the logarithmic axis.
    assert [*squares.lines[1].get_ydata()] == [1e-16] * 3
    band = squares.collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (1, 900) and {*aligned.lines[-1].get_ydata()} == {0.25}


def test_the_published_ksvd_loss_reaches_zero_without_the_subspaces_alone_and_beside_a_task():
    published, gains = [*Ksvd.sections(Ksvd.frame(ROOT / "results"))], []
    assert len(published) == 4
    for section in published:
        lines = section.table.set_index("loss")
        line, control, both, task = (
            lines.loc[loss] for loss in ("ksvd", "reconstruction", "task+ksvd", "task")
        )
        start, end = line["alignment, start"][0], line["alignment, end"][0]
        assert line["J², end"][2] < 1e-11 and line["J², start"][1] > 1e-2
        assert abs(end - start) < 0.1 and end < 0.36
        assert control["alignment, end"][1] > 0.995
        assert both["J², end"][0] < 2e-5 and task["J², end"][0] > 2
        gains.append(both["alignment, end"][0] - task["alignment, end"][0])
        assert both["alignment, end"][0] < 0.45
    assert all(0 <= gain < 0.15 for gain in gains) and sum(gains[:2]) / 2 < 0.02
