"""The comparison of Primal-Attention with the exact KSVD: its parts by their definitions."""

import json

import pytest
import torch

from harness import ksvd, weights
from harness.ksvd import Setting
from harness.layer_inputs import attentions, recorded
from harness.model import build_model
from harness.records.ksvd import KsvdCurve
from tests.zoo.primal_oracle import positions
from zoo.contract import Unsupported
from zoo.library import create

SETTING = Setting({"rank": 2}, dim=8, heads=1, tokens=16, samples=1, steps=100, lr=0.03)


def layer_of(variant="primal", **options):
    """A layer of two heads of width 4, of rank 2."""
    return create(variant, dim=8, heads=2, max_len=12, **{"rank": 2, **options}).double()


@pytest.mark.parametrize("trace", ["weights", "data"])
@pytest.mark.parametrize(
    ("variant", "options"),
    [
        ("primal", {"projections": "dependent", "rank_multi": 3}),
        ("primal", {"projections": "independent"}),
        ("primal-moments", {}),
    ],
)
def test_the_loss_is_eta_times_the_square_of_the_mean_objective(variant, options, trace):
    layer = layer_of(variant, trace=trace, eta=0.7, **options)
    x = torch.randn(3, 12, 8).double()
    expected = 0.7 * ksvd.objective(layer, x).mean().square()
    torch.testing.assert_close(layer(x).losses["ksvd"], expected, rtol=1e-10, atol=0)


def test_the_alignment_is_that_of_the_scores_with_the_singular_vectors_of_the_whole_kernel():
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
        assert ksvd.alignments(layer, x) == pytest.approx(expected, rel=1e-8)


def test_at_the_exact_subspaces_the_control_is_the_rest_of_the_spectrum():
    layer = create("primal", dim=4, heads=1, max_len=12, rank=2, projections="independent").double()
    x = torch.randn(1, 12, 4).double()
    phi_q, phi_k = layer.problem(x)[0][0, :, 0].detach()
    u, s, vt = torch.linalg.svd(phi_q @ phi_k.T)
    mixed = torch.randn(2, 2).double()
    with torch.no_grad():
        layer.directions.copy_(
            torch.stack([phi_k.T @ vt[:2].T @ mixed, phi_q.T @ u[:, :2]])[:, None]
        )
    assert ksvd.alignments(layer, x) == pytest.approx((1, 1))
    expected = (s[2:] ** 2).sum() / (s**2).sum()
    assert ksvd.reconstruction(layer, x).item() == pytest.approx(expected.item())


@pytest.mark.slow
def test_the_ksvd_loss_reaches_zero_where_it_is_and_the_control_reaches_the_subspaces():
    losses = ["ksvd", "task", "task+ksvd", "reconstruction"]
    found = {
        one.loss: one
        for one in ksvd.training_curves(SETTING, ["random"], ["weights"], ["data"], losses, [1])
    }
    starts = {one.states[0] for one in found.values()}
    assert len(starts) == 1
    ends = {name: one.states[-1] for name, one in found.items()}
    start = starts.pop()
    assert ends["ksvd"].objective ** 2 < 1e-4 < 1e-2 < start.objective**2
    assert max(ends["ksvd"].left, ends["ksvd"].right) < 0.8
    assert min(ends["reconstruction"].left, ends["reconstruction"].right) > 0.95
    assert ends["task"].task < start.task / 2 and ends["task"].objective ** 2 > 1e-2
    assert ends["task+ksvd"].task < start.task / 2 and ends["task+ksvd"].objective ** 2 < 1e-2
    assert [one.step for one in found["task"].states] == ksvd.recorded_steps(100)


def test_queries_and_keys_are_trained_only_if_everything_is():
    x, target = torch.randn(2, 1, 16, 8).double()
    for trained in ("weights", "all"):
        layer = create("primal", dim=8, heads=1, max_len=16, rank=2).double()
        before = layer.query_key.weight.detach().clone()
        setting = SETTING._replace(steps=2)
        ksvd._train(layer, x, target, "task", trained, setting)
        assert torch.equal(layer.query_key.weight, before) is (trained == "weights")


def test_steps_are_recorded_from_the_first_to_the_last():
    assert ksvd.recorded_steps(1) == [0, 1]
    steps = ksvd.recorded_steps(300)
    assert (steps[:4], steps[-1]) == ([0, 1, 2, 3], 300) and len(steps) < 27


@pytest.mark.slow
def test_a_run_is_compared_at_each_kept_step_on_the_real_tokens_of_dev(plan, tmp_path, monkeypatch):
    one = plan("softmax+primal", settings={"primal": {"rank": "3"}})
    model = build_model(one.spec, one.task).eval()
    files = {0: weights.save(tmp_path, 0, model)}
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    files[5] = weights.save(tmp_path, 5, model)
    dev, layer = one.data.splits["dev"], attentions(model)[-1]
    monkeypatch.setitem(one.data.splits, "test", None)
    (curve,) = ksvd.run_curves(one, files, 3)
    assert [state.step for state in curve.states] == [0, 5]
    assert curve.inputs == "listops softmax+primal, layer 2" and curve.rank == 3
    with torch.no_grad(), recorded(model) as calls:
        batches = [dev.gather(torch.tensor([example])) for example in (0, 7, 15)]
        for batch in batches:
            model(batch)
    real = [call.x[:, call.mask[0]] for call in calls[1::2]]
    assert curve.tokens == max(x.shape[1] for x in real) < 24
    mean = sum(ksvd.objective(layer, x).mean().item() for x in real) / 3
    assert curve.states[-1].objective == pytest.approx(mean, rel=1e-4)
    with pytest.raises(Unsupported, match="no layer of the run of softmax is primal"):
        [*ksvd.run_curves(plan("softmax"), files, 3)]


def test_the_causal_form_with_weights_for_each_token_is_rejected():
    layer = layer_of("primal-moments", causal=True)
    with pytest.raises(Unsupported, match="weights for each token"):
        layer.problem(torch.randn(1, 12, 8).double())


@pytest.mark.slow
def test_the_command_writes_a_table_and_a_figure(call, tmp_path):
    small = ["--dim", "8", "--tokens", "8", "--rank", "2", "--steps", "2", "--seeds", "0,1"]
    given = ["--losses", "ksvd,task", "--traces", "data", "--out", str(tmp_path), "--json"]
    code, text, err = call("study", "ksvd", *small, *given)
    assert code == 0, err
    curves = [KsvdCurve.model_validate(row) for row in json.loads(text)["rows"]]
    assert [(one.loss, one.seed) for one in curves] == [
        ("ksvd", 0), ("ksvd", 1), ("task", 0), ("task", 1),
    ]  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {
        f"ksvd.{kind}" for kind in ("md", "csv", "png", "svg")
    }


@pytest.mark.slow
def test_the_command_reads_a_run_with_kept_weights(call, store, unmeasured, tmp_path):
    given = ["--budget", "smoke", "--precision", "fp32", "--keep-checkpoints"]
    for option in ("min_len=2", "max_len=24", "train=64", "dev=16", "test=18"):
        given += ["--set", f"listops.{option}"]
    assert call("run", "-a", "primal", *given)[0] == 0
    (name,) = [path.stem for path in store.folder.glob("*.json")]
    code, text, err = call("study", "ksvd", "--run", name, "--out", str(tmp_path), "--json")
    assert code == 0, err
    first = KsvdCurve.model_validate(json.loads(text)["rows"][0])
    assert first.states[0].step == 0 < first.states[-1].step
    assert first.inputs == "listops primal, layer 1"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--losses", "ksdv"], "did you mean 'ksvd'?"),
        (["--trained", "none"], "unknown trained part 'none'"),
        (["--inputs", "smoth"], "did you mean 'smooth'?"),
        (["--traces", "x"], "unknown trace 'x'"),
        (["--set", "linear.chunk=1"], "'linear' is not the variant"),
        (["--set", "primal.rnk=1"], "did you mean 'rank'?"),
        (["--set", "primal.trace=data"], "give --traces"),
        (["--rank", "32"], "rank 32 of 32 features spans all singular vectors"),
        (["--tokens", "4"], "rank 4 of 4 tokens spans all singular vectors"),
        (["--dim", "9", "--heads", "2"], "heads"),
        (["--seeds", "a"], "are not integers"),
        (["--run", "missing"], "unknown run 'missing'"),
    ],
)
def test_bad_input_is_one_line(call, tmp_path, options, message):
    code, _, err = call("study", "ksvd", *options, "--out", str(tmp_path))
    assert code == 2 and message in err and err.count("\n") == 1
    assert not [*tmp_path.iterdir()]
