"""The Decision Transformer, and runs of task control from the file to the table."""

import pytest
import torch

from harness.data import restore
from harness.model import DecisionTransformer, build_model
from harness.records import spec as specs
from harness.runner import roll_out
from harness.train import Trainer
from tasks.answers import Actions
from tasks.contract import Batch
from tests.conftest import one_line
from tests.harness.conftest import requested
from tests.trajectories import record_short
from zoo import create

pytest.importorskip("mujoco")
pytest.importorskip("h5py")

STATES, ACTIONS, STEPS = 4, 2, 6
SMALL = {"context": 5, "episodes": 2, "steps": 40, "dev": 0.34}


def model(name: str) -> DecisionTransformer:
    torch.manual_seed(0)
    layers = [create(name, dim=16, heads=2, max_len=3 * STEPS, causal=True) for _ in range(2)]
    around = specs.DecisionTransformer(
        depth=2, dim=16, heads=2, feed_forward=24, dropout=0.0, attention_dropout=0.0,
        positions="learned",
    )  # fmt: skip
    sizes = {"state_dim": STATES, "action_dim": ACTIONS, "max_steps": 9}
    return DecisionTransformer(layers, around, **sizes)


def draw(batch: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(batch, 1, STEPS, 2 + STATES + ACTIONS, generator=generator)
    steps[..., 0] = torch.arange(STEPS)
    mask = torch.arange(STEPS) < torch.tensor([STEPS, 2, 4])[:, None, None]
    targets = torch.where(mask[:, 0, :, None], steps[:, 0, :, -ACTIONS:], torch.nan)
    return Batch(steps, mask, targets)


def test_an_action_depends_on_its_own_state_and_return_and_on_nothing_later():
    batch, at = draw(), 3
    tokens = batch.tokens.clone().requires_grad_()
    actions, _ = model("primal").eval()(Batch(tokens, None, batch.targets))
    assert actions.shape == (3, STEPS, ACTIONS) and actions.abs().max() <= 1
    actions[:, at].sum().backward()
    used = tokens.grad[:, 0].abs().amax(0) > 0
    assert used[:at, 1:].all() and used[at, 1:-ACTIONS].all()
    assert not used[at, -ACTIONS:].any() and not used[at + 1 :].any()


def test_tokens_are_the_return_the_state_and_the_action_of_each_step_with_its_time():
    trained, batch, seen = model("softmax").eval(), draw(), []
    batch.tokens[1, ..., 0] += 3
    for parameter in trained.embedding_norm.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    trained.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    trained(batch)
    expected = []
    for step in batch.tokens[:, 0].unbind(1):
        time = trained.time.weight[step[:, 0].long()]
        embedded = trained.embed_return(step[:, 1:2]), trained.embed_state(step[:, 2:6])
        expected += [part + time for part in (*embedded, trained.embed_action(step[:, 6:]))]
    norm = trained.embedding_norm
    x = torch.nn.functional.layer_norm(
        torch.stack(expected, 1), (16,), norm.weight, norm.bias, norm.eps
    )
    torch.testing.assert_close(seen[0], x)


def test_the_loss_is_the_mean_squared_error_and_padding_is_in_no_loss_and_in_no_gradient():
    batch, results, kind = draw(), [], Actions()
    noise = batch.tokens.masked_fill(~batch.mask[..., None], 3.0)
    for tokens in (batch.tokens, noise):
        trained = model("primal").train()
        actions, losses = trained(Batch(tokens, batch.mask, batch.targets))
        loss = kind.loss(actions, batch.targets)
        (loss + sum(losses.values())).backward()
        results.append([loss, *losses.values(), *(part.grad for part in trained.parameters())])
    assert all(part.isfinite().all() for part in results[0])
    torch.testing.assert_close(*results)
    real = batch.mask[:, 0]
    torch.testing.assert_close(loss, (actions - batch.targets)[real].square().mean())
    assert not kind.losses(actions, batch.targets)[~real].any()
    assert int(kind.counted(batch.targets).sum()) == 12


@pytest.fixture
def pendulum(tmp_path):
    path = record_short(tmp_path / "pendulum.hdf5")

    def make(attention: str = "primal", **settings):
        settings = {"control": {"path": path, **SMALL}, "train": {"batch": 16}} | settings
        return requested(attention, "control", **settings)

    return make


def test_the_record_has_returns_and_no_accuracy(pendulum, store, reported, run_here):
    record = run_here(pendulum())
    final = record.final
    assert final is not None, (record.reason, reported["trace"])
    assert record.metric.name == "normalised return" and final.score == final.sample.mean
    assert final.sample.sizes == (1, 1) and final.test_examples == 2
    on_dev = [point.dev for point in record.curve if point.dev is not None]
    assert len(on_dev) == 2 and final.dev == min(on_dev)
    assert record.selection.name == "squared error"
    assert {"gymnasium", "mujoco"} <= {*record.environment.versions} and store.read()[0] == [record]
    with one_line("drop_path has no meaning for trajectories"):
        pendulum(model={"drop_path": 0.1})
    record = run_here(pendulum(train={"best_on_test": True}))
    assert record.status == "failed" and "has no test answers" in record.reason


def test_a_roll_out_takes_the_action_of_the_last_step_that_is_there(pendulum, monkeypatch):
    spec, calls = pendulum("softmax"), []
    train, test = (restore(spec).splits[name] for name in ("train", "test"))
    torch.manual_seed(0)
    trained = build_model(spec, restore(spec).task)

    def returns(self, act, test):
        calls.append((act, trained.training))
        return [55.0]

    monkeypatch.setattr(type(restore(spec).task), "returns", returns)
    found = roll_out(Trainer(trained.train(), train, spec.train, 0), restore(spec).task, test)
    ((act, training),) = calls
    assert found.mean == 50.0 and not training
    for count in (1, 3, 5):
        steps = train.sequences[:3, :count]
        windows = torch.zeros(3, 5, steps.shape[-1])
        windows[:, :count] = steps
        # Without the padding there is nothing to mask.
        expected = trained(Batch(steps[:, None], None, steps[..., -1:]))[0][:, -1]
        torch.testing.assert_close(act(windows, count), expected.detach())
