"""The literal model of a run: built from its specification, called with a batch, given weights."""

import torch
from torch import Tensor, nn

from harness.environment import options_of
from harness.records.spec import RunSpec
from tasks import Task
from tasks.contract import Batch
from tests.literal.model import Config, Model, PrimalAttention
from zoo.registry import UserError


class LiteralClassifier(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.model = Model(config)

    def forward(self, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.mask is None else batch.mask
        scores, loss = self.model(batch.tokens, real)
        return scores, {"ksvd": loss}


def build(spec: RunSpec, task: Task) -> LiteralClassifier:
    model, options = spec.model, options_of(spec).get("primal", {})
    published = {"projections": "auto", "trace": "weights", "ksvd_mean": "batch"}.items()
    is_usual = spec.attention in ("primal", "softmax+primal") and published <= options.items()
    if not is_usual or task.causal or model.attention_dropout or model.positions != "learned":
        raise UserError(
            f"the literal model is written for primal and softmax+primal as published, and not for "
            f"{spec.attention} on {task.key} with {dict(options)}; use the defaults"
        )
    sizes = ("depth", "dim", "heads", "feed_forward", "head", "dropout")
    return LiteralClassifier(Config(
        vocabulary=task.vocabulary, classes=task.classes, max_len=task.max_len,
        sequences=task.sequences, attention=spec.attention,
        **{name: options[name] for name in ("rank", "eta", "rank_multi")},
        **{name: getattr(model, name) for name in sizes},
    ))  # fmt: skip


def translated(literal: LiteralClassifier, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    remaining, converted = dict(tensors), {}

    def linear(ours: str, *theirs: str) -> None:
        for kind in ("weight", "bias"):
            chunks = remaining.pop(f"{ours}.{kind}").chunk(len(theirs))
            names = (f"{name}.{kind}" for name in theirs)
            converted.update(zip(names, chunks, strict=True))

    for ours, theirs in (("token", "token_embedding"), ("position", "position_embedding")):
        converted[f"{theirs}.weight"] = remaining.pop(f"{ours}.weight")
    for i, layer in enumerate(literal.model.layers):
        at, attention = f"layers.{i}", f"layers.{i}.attention"
        if isinstance(layer.attention, PrimalAttention):
            linear(f"{attention}.query_key", f"{attention}.W_q", f"{attention}.W_k")
            w_e, w_r = remaining.pop(f"{attention}.directions")
            converted |= {f"{attention}.W_e": w_e, f"{attention}.W_r": w_r}
            converted[f"{attention}.Lambda"] = remaining.pop(f"{attention}.scales")
            linear(f"{attention}.merge", f"{attention}.C")
        else:
            linear(f"{attention}.query", f"{attention}.W_q")
            linear(f"{attention}.context", f"{attention}.W_k", f"{attention}.W_v")
        linear(f"{attention}.out", f"{attention}.O")
        linear(f"{at}.attention_norm", f"{at}.attention_norm")
        linear(f"{at}.feed_forward_norm", f"{at}.feed_forward_norm")
        linear(f"{at}.feed_forward.0", f"{at}.linear_1")
        linear(f"{at}.feed_forward.3", f"{at}.linear_2")
    linear("norm", "norm")
    linear("head.0", "head_1")
    linear("head.2", "head_2")
    assert not remaining, f"no counterpart: {sorted(remaining)}"
    return {f"model.{name}": tensor for name, tensor in converted.items()}
