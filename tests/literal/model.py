"""The published model, written out line by line: what `zoo.variants.primal` must agree with.

Chen, Tao, Tonin, Suykens, NeurIPS 2023, arXiv 2305.19798: Primal-Attention (Sections 3 and 4) in
the transformer of its Long Range Arena runs. Nothing is folded, chunked or shared with the packages
that it tests, and parameters have the paper's symbols.

Sizes: B sequences, N tokens, D width, H heads, p = D / H, s rank, a sampled tokens. `real` (B, N)
is False at padding. Padding is where this model leaves the published runs, as ours does: sampled
tokens are real tokens, and means over tokens run over real tokens.

As in the published runs, autocast ends where attention begins: scores and losses are computed in
the precision of the parameters.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary: int
    classes: int
    max_len: int
    # In every layer (PrimalFormer), or in the last alone (Primal.+Transformer).
    attention: Literal["primal", "softmax+primal"]
    rank: int
    eta: float
    rank_multi: int  # Sampled tokens per direction
    sequences: int  # Of an example: 1, or 2 that are compared
    depth: int
    dim: int
    heads: int
    feed_forward: int
    head: int  # Hidden width of the classifier
    dropout: float


class PrimalAttention(nn.Module):
    """o(x) = C [e(x); r(x)] + c in each head; heads are concatenated and projected."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        heads, rank, dim = config.heads, config.rank, config.dim
        a, p = min(config.max_len, rank * config.rank_multi), dim // heads
        self.heads = heads
        self.W_q = nn.Linear(dim, dim)
        self.W_k = nn.Linear(dim, dim)
        self.W_e = nn.Parameter(semi_orthogonal(heads, a, rank))
        self.W_r = nn.Parameter(semi_orthogonal(heads, a, rank))
        self.Lambda = nn.Parameter(torch.rand(heads, rank))
        self.C = nn.Linear(2 * rank, p)
        self.O = nn.Linear(dim, dim)

    def forward(self, X: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens (B, N, D), and J^2."""
        q, k = split_heads(self.W_q(X), self.heads), split_heads(self.W_k(X), self.heads)
        with torch.autocast(X.device.type, enabled=False):
            phi_q, phi_k = unit(q.to(X.dtype)), unit(k.to(X.dtype))
            X_s = self.sample(X, real)
            e = phi_q @ torch.einsum("bahp,has->bhps", X_s, self.W_e)
            r = phi_k @ torch.einsum("bahp,has->bhps", X_s, self.W_r)
            loss = self.objective(e, r, real) ** 2
            o = self.C(torch.cat([e, r], dim=-1))
        return self.O(join_heads(o)), loss

    def sample(self, X: Tensor, real: Tensor) -> Tensor:
        """X_s (B, a, H, p): the real tokens of X at evenly spaced positions among the real ones."""
        samples = []
        for tokens, is_real in zip(X, real, strict=True):
            tokens = tokens[is_real]
            indices = torch.linspace(0, len(tokens) - 1, self.W_e.shape[1], dtype=torch.float64)
            samples.append(tokens[indices.long()])
        return torch.stack(samples).unflatten(-1, (self.heads, -1))

    def objective(self, e: Tensor, r: Tensor, real: Tensor) -> Tensor:
        """J of the whole batch: means over sequences, heads and real tokens."""
        scale = self.Lambda[:, None, :]
        squares = (e * scale).square().sum(-1) + (r * scale).square().sum(-1)  # (B, H, N)
        energy = squares.transpose(1, 2)[real].mean() / 2
        heads = zip(self.W_e, self.W_r, strict=True)
        traces = [torch.trace(w_e.T @ w_r) for w_e, w_r in heads]
        return energy - torch.stack(traces).mean()


class SoftmaxAttention(nn.Module):
    """softmax(q k^T / sqrt(p)) v in each head; heads are concatenated and projected."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.W_q = nn.Linear(config.dim, config.dim)
        self.W_k = nn.Linear(config.dim, config.dim)
        self.W_v = nn.Linear(config.dim, config.dim)
        self.O = nn.Linear(config.dim, config.dim)

    def forward(self, X: Tensor, real: Tensor) -> tuple[Tensor, None]:
        """Tokens (B, N, D), and no loss."""
        q, k, v = (split_heads(W(X), self.heads) for W in (self.W_q, self.W_k, self.W_v))
        with torch.autocast(X.device.type, enabled=False):
            q, k, v = q.to(X.dtype), k.to(X.dtype), v.to(X.dtype)
            o = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None, :])
        return self.O(join_heads(o)), None


class Layer(nn.Module):
    """Pre-norm attention and feed-forward block, each with a residual connection."""

    def __init__(self, attention: nn.Module, config: Config) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(config.dim)
        self.attention_dropout = nn.Dropout(config.dropout)
        self.feed_forward_norm = nn.LayerNorm(config.dim)
        self.linear_1 = nn.Linear(config.dim, config.feed_forward)
        self.activation_dropout = nn.Dropout(config.dropout)
        self.linear_2 = nn.Linear(config.feed_forward, config.dim)
        self.feed_forward_dropout = nn.Dropout(config.dropout)

    def forward(self, X: Tensor, real: Tensor) -> tuple[Tensor, Tensor | None]:
        attended, loss = self.attention(self.attention_norm(X), real)
        X = X + self.attention_dropout(attended)
        hidden = F.gelu(self.linear_1(self.feed_forward_norm(X)))
        hidden = self.linear_2(self.activation_dropout(hidden))
        return X + self.feed_forward_dropout(hidden), loss


class Model(nn.Module):
    """Embedding, layers, a last normalisation, the mean over real tokens, and the classifier."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.eta = config.eta
        self.token_embedding = nn.Embedding(config.vocabulary, config.dim)
        self.position_embedding = nn.Embedding(config.max_len, config.dim)
        for embedding in (self.token_embedding, self.position_embedding):
            nn.init.normal_(embedding.weight, std=0.02)
        self.embedding_dropout = nn.Dropout(config.dropout)
        body = PrimalAttention if config.attention == "primal" else SoftmaxAttention
        kinds = [body] * (config.depth - 1) + [PrimalAttention]
        self.layers = nn.ModuleList(Layer(kind(config), config) for kind in kinds)
        self.norm = nn.LayerNorm(config.dim)
        features = config.dim if config.sequences == 1 else 4 * config.dim
        self.head_1 = nn.Linear(features, config.head)
        self.head_2 = nn.Linear(config.head, config.classes)

    def forward(self, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (examples, classes), and eta times the mean of J^2 over the primal layers.

        `tokens` and `real` are (examples, sequences, N).
        """
        pooled, loss = self.encode(tokens.flatten(0, 1), real.flatten(0, 1))
        pooled = pooled.unflatten(0, tokens.shape[:2])
        features = pooled[:, 0]
        if pooled.shape[1] == 2:
            u, v = pooled[:, 0], pooled[:, 1]
            features = torch.cat([u, v, u * v, u - v], dim=-1)
        return self.head_2(F.relu(self.head_1(features))), loss

    def encode(self, tokens: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The mean of each sequence's real tokens (B, D), and the loss."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        X = self.token_embedding(tokens) + self.position_embedding(positions)
        X = self.embedding_dropout(X)
        losses = []
        for layer in self.layers:
            X, loss = layer(X, real)
            if loss is not None:
                losses.append(loss)
        total = (self.norm(X) * real[..., None]).sum(1)
        return total / real.sum(1, keepdim=True), self.eta * torch.stack(losses).mean()


def semi_orthogonal(heads: int, a: int, rank: int) -> Tensor:
    """(H, a, s) from an (H, a s) matrix of orthonormal rows: Frobenius norm 1 a head."""
    return nn.init.orthogonal_(torch.empty(heads, a * rank)).reshape(heads, a, rank)


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """(B, N, D) to (B, H, N, p)."""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(heads: Tensor) -> Tensor:
    """(B, H, N, p) to (B, N, D)."""
    return heads.transpose(1, 2).flatten(2)


def unit(u: Tensor) -> Tensor:
    """The feature map phi(u) = u / ||u||."""
    return u / u.norm(dim=-1, keepdim=True)
