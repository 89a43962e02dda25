"""The Decision Transformer around a variant: returns-to-go, states and actions to actions.

Chen et al., "Decision Transformer: Reinforcement Learning via Sequence Modeling", 2021, arXiv
2106.01345. Each step t of a window is three tokens, its return-to-go, state and action:

    x_3t = LN(W_r r_t + u_t),  x_3t+1 = LN(W_s s_t + u_t),  x_3t+2 = LN(W_a a_t + u_t)
    a'_t = tanh(W y_3t+1 + b)

where u_t is the embedding of the time step and y is the output of causal layers and a final norm.
Layers and initialisation are as in the other models here: the published ones have ReLU, no
dropout after it, and weights of standard deviation 0.02.
"""

from collections.abc import Sequence
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from harness.classifier import Layers, size_of
from harness.records import models as specs
from harness.records.spec import RunSpec
from tasks import Task
from tasks.contract import Batch
from tasks.control.windows import RETURN, STATES, TIME
from zoo.composition import build
from zoo.contract import Attention
from zoo.kernels.dropout import Dropout
from zoo.kernels.layer_norm import LayerNorm


class DecisionTransformer(nn.Module):
    """Predicts the action of each step from the steps before it, its return-to-go and its state."""

    def __init__(
        self,
        layers: Sequence[Attention],
        model: specs.DecisionTransformer,
        *,
        state_dim: int,
        action_dim: int,
        max_steps: int,
    ) -> None:
        """Build the model around `layers`, which are causal and have the same `Size`.

        A state has `state_dim` values, an action `action_dim`, an episode at most `max_steps`.
        """
        super().__init__()
        dim = layers[0].size.dim
        self.time = nn.Embedding(max_steps, dim)
        nn.init.normal_(self.time.weight, std=0.02)
        self.embed_return = nn.Linear(1, dim)
        self.embed_state = nn.Linear(state_dim, dim)
        self.embed_action = nn.Linear(action_dim, dim)
        self.embedding_norm = LayerNorm(dim)
        self.dropout = Dropout(model.dropout)
        self.layers = Layers(layers, model)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Sequential(nn.Linear(dim, action_dim), nn.Tanh())

    def forward(self, batch: Batch) -> tuple[Float[Tensor, "b k a"], dict[str, Tensor]]:
        """Return the action of each step, in [-1, 1], and the auxiliary losses.

        `batch.tokens` are windows of k steps, (b, 1, k, f), with the f channels of
        `tasks.control.windows`.
        """
        steps, actions = batch.tokens[:, 0], self.embed_action.in_features
        embedded = [
            self.embed_return(steps[..., RETURN:STATES]),
            self.embed_state(steps[..., STATES:-actions]),
            self.embed_action(steps[..., -actions:]),
        ]
        x = torch.stack(embedded, dim=2) + self.time(steps[..., TIME].long())[:, :, None]
        x = self.dropout(self.embedding_norm(x.flatten(1, 2)))
        mask = None if batch.mask is None else batch.mask[:, 0].repeat_interleave(3, dim=1)
        x, losses = self.layers(x, mask)
        return self.head(self.norm(x[:, 1::3])), losses


def build_decision_transformer(spec: RunSpec, task: Task) -> DecisionTransformer:
    """The model of a task of trajectories that `spec` describes; see `harness.model.build_model`.

    Raises:
        UserError: see `build_model`.
    """
    model = cast(specs.DecisionTransformer, spec.model)
    return DecisionTransformer(
        build(spec.layers, size_of(model, task), spec.options),
        model,
        state_dim=task.channels - STATES - task.classes,
        action_dim=task.classes,
        max_steps=task.vocabulary,
    )
