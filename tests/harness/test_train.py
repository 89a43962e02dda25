"""The training step, the learning rate, and the accuracy."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from harness.data import restore
from harness.model import build_model
from harness.schedules import one_cycle
from harness.train import Trainer
from tasks.answers import NextTokens, Number
from tasks.contract import Split


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("cycle_momentum", [True, False])
@pytest.mark.parametrize("attention", ["softmax", "primal", "softmax+primal"])
def test_a_step_is_that_of_a_plain_loop_to_the_bit(plan, prepare, attention, cycle_momentum):
    planned = plan(
        attention, steps=5, warmup=2, weight_decay=0.1, betas=(0.8, 0.98), eps=1e-4,
        cycle_momentum=cycle_momentum,
    )  # fmt: skip
    spec, trainer = planned, prepare(planned)
    torch.manual_seed(7)
    ours = [
        {name: loss.item() for name, loss in trainer.step(number).items()} for number in range(5)
    ]

    torch.manual_seed(spec.seed)
    model = build_model(spec, restore(planned).task)
    train = restore(planned).splits["train"]
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).split(4)
    optimizer = torch.optim.AdamW(
        model.parameters(), betas=(0.8, 0.98), eps=1e-4, weight_decay=0.1, fused=True
    )
    torch.manual_seed(7)
    theirs = []
    for number in range(5):
        rate, momentum = one_cycle(number, spec.train)
        optimizer.param_groups[0].update(lr=rate, betas=(momentum, 0.98))
        examples = order[number]
        batch = train.gather(examples)
        logits, losses = model(batch)
        loss = F.cross_entropy(logits, batch.targets)
        theirs.append({"task": loss.item(), **{n: term.item() for n, term in losses.items()}})
        (loss + sum(losses.values())).backward()
        optimizer.step()
        optimizer.zero_grad()

    assert ours == theirs
    assert ("ksvd" in ours[0]) is ("primal" in attention)
    for mine, other in zip(trainer.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_losses_are_detached(plan, prepare):
    losses = prepare(plan("primal")).step(0)
    assert losses.keys() == {"task", "ksvd"}
    assert not any(loss.requires_grad for loss in losses.values())


def some(split: Split, count: int) -> Split:
    return Split(
        split.sequences[:count], split.lengths[:count], split.sequence_ids[:count],
        split.targets[:count], split.padded,
    )  # fmt: skip


def test_accuracy_counts_the_last_incomplete_batch(plan, prepare):
    planned = plan(batch=4)
    trainer = prepare(planned)
    ten = some(restore(planned).splits["test"], 10)
    trainer.model.eval()
    guesses = [trainer.model(ten.gather(torch.tensor([i])))[0].argmax().item() for i in range(10)]
    # Correct at 0, 4 and 9: another count without the last two, and with them counted twice.
    targets = [g if i in (0, 4, 9) else (g + 1) % 10 for i, g in enumerate(guesses)]
    ten.targets.copy_(torch.tensor(targets))
    assert trainer.evaluate(ten).score == pytest.approx(30)


def test_accuracy_counts_every_answer_of_an_example(plan, prepare):
    trainer = prepare(plan(batch=4))
    split = some(restore(plan()).splits["test"], 6)
    target_positions = torch.tensor([[0, 1]] * 6)
    several = replace(
        split, target_positions=target_positions, targets=torch.zeros(6, 2, dtype=torch.int64)
    )
    trainer.model.eval()
    guesses = trainer.model(several.gather(torch.arange(6)))[0].argmax(-1)
    wrong = torch.tensor([[0, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 1]])
    answered = replace(several, targets=(guesses + wrong) % 10)
    assert trainer.evaluate(answered).mean == pytest.approx(8 / 12)


def test_a_mean_loss_is_over_targets_and_not_over_the_end_of_a_text(plan, prepare):
    trainer = prepare(plan(batch=4))
    targets = torch.tensor([[1, 2], [3, 4], [5, -1]])
    split = replace(
        some(restore(plan()).splits["test"], 3), target_positions=torch.tensor([[0, 1]] * 3),
        targets=targets, answers=NextTokens(),
    )  # fmt: skip
    trainer.model.eval()
    scores = trainer.model(split.gather(torch.arange(3)))[0].double().log_softmax(-1)
    of_targets = scores.gather(-1, targets.clamp_min(0)[..., None])[..., 0]
    result = trainer.evaluate(split)
    assert result.answered == 5
    assert result.mean == pytest.approx(-of_targets[targets >= 0].mean().item(), rel=1e-5)


def test_the_loss_is_the_one_of_the_splits_answers(plan, prepare):
    untrained = prepare(plan())
    numbers = replace(
        untrained.train, targets=torch.full((len(untrained.train),), 7.0), answers=Number(0.1)
    )
    trainer = Trainer(untrained.model, numbers, untrained.spec, seed=0)
    # The output of an untrained model is about 0: the squared error of 7.
    assert trainer.step(0)["task"].item() == pytest.approx(49, rel=0.2)


def test_accuracy_switches_dropout_off_and_leaves_the_model_as_it_was(plan, prepare):
    trainer, modes = prepare(plan()), []
    trainer.model.register_forward_pre_hook(lambda model, _: modes.append(model.training))
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    state = torch.get_rng_state()
    trainer.evaluate(restore(plan()).splits["dev"])
    assert modes == [False] * 4 and all(module.training for module in trainer.model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    after = trainer.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_bf16_computes_products_in_half_precision_with_parameters_in_fp32(plan, prepare):
    trainer = prepare(plan(precision="bf16"))
    kinds = []
    inner = trainer.model.layers[0].feed_forward[0]
    inner.register_forward_hook(lambda *call: kinds.append(call[2].dtype))
    trainer.step(0)
    trainer.evaluate(restore(plan()).splits["dev"])
    assert kinds == [torch.bfloat16] * 5
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}
