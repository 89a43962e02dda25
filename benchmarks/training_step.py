"""The harness's training step beside a bare PyTorch loop around the same model.

Run: python -m benchmarks.training_step
Claim: the step costs at most 3 % more.
"""

import torch
from torch.nn import functional as F

from benchmarks.turns import compare
from harness.model import build
from harness.plan import Request, resolve
from harness.train import Trainer
from tasks.contract import Batch


def main() -> None:
    plan = resolve(
        Request(
            attention="primal",
            task="listops",
            budget="laptop",
            seed=0,
            device="cpu",
            precision="fp32",
            compiled=False,
        )
    )
    spec, train = plan.spec, plan.data.splits["train"]
    trainer = Trainer(build(spec, plan.task, plan.composition), train, spec.train, spec.seed)
    model = build(spec, plan.task, plan.composition)
    recipe = spec.train.model_dump(include={"lr", "betas", "eps", "weight_decay"})
    optimizer = torch.optim.AdamW(model.parameters(), **recipe, fused=True)
    # The bare loop has its batch ready: gathering is the harness's own cost.
    ready = train.gather(trainer.order.batch(0))

    def harness() -> None:
        trainer.step(0)

    def bare() -> None:
        scores, losses = model(Batch(ready.tokens, ready.mask, ready.targets))
        (F.cross_entropy(scores, ready.targets) + losses["ksvd"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    compare({"bare loop": bare, "harness": harness}, memory=False)


if __name__ == "__main__":
    main()
