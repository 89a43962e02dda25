"""The training step of the harness compared with a plain PyTorch loop around the same model.

Run: python -m benchmarks.training_step
Claim: the step takes at most 3 % longer.
"""

import torch
from torch.nn import functional as F

from benchmarks.turns import compare
from harness.model import build_model
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
    trainer = Trainer(build_model(spec, plan.task, plan.composition), train, spec.train, spec.seed)
    model = build_model(spec, plan.task, plan.composition)
    recipe = spec.train.model_dump(include={"lr", "betas", "eps", "weight_decay"})
    optimizer = torch.optim.AdamW(model.parameters(), **recipe, fused=True)
    # Gathered before: gathering is part of the cost of the harness, not of the loop.
    gathered = train.gather(trainer.order.batch(0))

    def harness() -> None:
        trainer.step(0)

    def loop() -> None:
        scores, losses = model(Batch(gathered.tokens, gathered.mask, gathered.targets))
        (F.cross_entropy(scores, gathered.targets) + losses["ksvd"]).backward()
        optimizer.step()
        optimizer.zero_grad()

    compare({"plain loop": loop, "harness": harness}, memory=False)


if __name__ == "__main__":
    main()
