"""mLSTM: a matrix memory with exponential input gates and a running maximum.

Beck, Poeppel, Spanring, Auer, Prudnikova, Kopp, Klambauer, Brandstetter, Hochreiter, "xLSTM:
Extended Long Short-Term Memory", NeurIPS 2024, arXiv 2405.04517, equations 19 to 27. For each head,

    i_t = cap(w_i . x_t + b_i)     f_t = sigmoid(cap(w_f . x_t + b_f))     cap(z) = 15 tanh(z / 15)
    C_t = f_t C_(t-1) + exp(i_t) k_t v_t^T        n_t = f_t n_(t-1) + exp(i_t) k_t
    h_t = C_t^T q_t / max(|n_t . q_t|, 1)         out = W_o (sigmoid(W_g x) * Norm_h(h))

with q / sqrt(e). exp(i) is computed relative to a running maximum m, which cancels in h and has no
gradient:

    m_t = max(log f_t + m_(t-1), i_t)             f'_t = exp(log f_t + m_(t-1) - m_t)
    w_t = exp(i_t - m_t)                          h_t = C'_t^T q_t / max(|n'_t . q_t|, exp(-m_t))

So [C', n'] is the recurrence of `zoo.kernels.delta` with decay f', for keys w k and values [v, 1].
All m_t are known from cumulative sums and maxima, in fp64, before it runs. Time O(n (chunk + e) e),
state e (e + 1) + 1 per head.

w_i and w_f start at 0, b_i near 0, b_f between 3 and 6, as in the paper: half-lives of 14 to 280
tokens. cap keeps exp(-m) from overflow; it and the layer are those of xLSTM 7B (arXiv 2503.13427),
where b_i starts at -10.

Deviations: the layer of the paper projects to twice the width and convolves it; `Size.short_conv`
convolves queries, keys and values. Keys are as wide as values, where xLSTM 7B halves them. Norm_h
is a group norm, one group per head, with a bias and an epsilon of 1e-5. Nothing is added to the
divisor, as in the paper; the code of its authors adds 1e-6.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.contract import Mask, Positions, Queries, Size, State, Tokens, Traits
from zoo.gated import CausalHeads
from zoo.kernels import delta
from zoo.kernels.precision import full_precision
from zoo.kernels.real_tokens import count_after, positions_after, zero_padding
from zoo.projection import Projected
from zoo.recurrent import Heads, in_heads, loops_or_chunks
from zoo.variants import variants

Gate = Float[Tensor, "b h n 1"]

CAP = 15.0


@variants.register("mlstm")
class Mlstm(CausalHeads):
    """Linear attention with a forget gate, and an input gate that can exceed all before."""

    version = "1.0"
    family = "decay"
    traits = Traits.causal_only(linear=True, stochastic=False, recurrent=True)
    backend_for = loops_or_chunks

    def __init__(self, size: Size) -> None:
        super().__init__(size)
        self.gates = nn.Linear(size.dim, 2 * size.heads)
        with torch.no_grad():
            self.gates.weight.zero_()
            self.gates.bias[: size.heads].normal_(std=0.1)
            self.gates.bias[size.heads :] = torch.linspace(3, 6, size.heads)
        self.make_output()

    def activated(self, gate: Tokens) -> Tokens:
        return gate.sigmoid()

    def attend(self, x: Tokens) -> Queries:
        return self._heads(
            x, self.short_conv(self.query_key_value(x)), None, None, self.start(x.shape[0])
        )[0]

    def start(self, batch: int) -> State:
        # C and n of each head, the maximum m, and the number of tokens.
        heads, width = self.size.heads, self.size.head_dim
        sums, m = (self.zero_state(batch, heads, *of) for of in ((width, width + 1), (1, 1)))
        past = self.zero_past(batch, self.short_conv)
        return sums, m.double(), self.zero_state(batch).long(), *past

    def extend(self, x: Tokens, real: Mask, state: State) -> tuple[Tokens, State]:
        count, n = state[2], x.shape[1]
        projected, past = self.short_conv.extend(self.query_key_value(x), state[3:], real)
        heads, sums, m = self._heads(x, projected, positions_after(count, n), real, state)
        return self.merge(x, heads), (sums, m, count_after(count, n, real), *past)

    def _heads(
        self, x: Tokens, projected: Projected, positions: Positions | None, real: Mask,
        state: State,
    ) -> tuple[Queries, Tensor, Tensor]:  # fmt: skip
        heads, (sums, before) = self.size.heads, state[:2]
        with full_precision(projected, self.gates(x)) as (u, gates):
            q, k, v = u.chunk(3, dim=-1)
            q, k = (self.apply_rotary(in_heads(part, heads), positions) for part in (q, k))
            q = q * q.shape[-1] ** -0.5
            log_write, log_forget = in_heads(CAP * (gates / CAP).tanh(), 2 * heads).chunk(2, dim=1)
            log_forget = zero_padding(F.logsigmoid(log_forget), real)
            if real is not None:
                log_write = log_write.masked_fill(~real[:, None, :, None], -torch.inf)
            return memory(q, k, in_heads(v, heads), log_write, log_forget, sums, before)


def memory(
    q: Queries, k: Queries, v: Heads, log_write: Gate, log_forget: Gate,
    sums: Float[Tensor, "b h e g"], before: Float[Tensor, "b h 1 1"],
) -> tuple[Heads, Tensor, Tensor]:  # fmt: skip
    # The outputs h_t of scaled queries after [C', n'] = `sums` and m = `before`, and these after.
    # `log_write` is i; of a padded token it is minus infinity, and log f is 0.
    with torch.no_grad():  # m_t, in fp64
        total = log_forget.double().cumsum(2)
        m = total + torch.maximum((log_write - total).cummax(2).values, before)
    since = torch.cat([before, m], dim=2)[:, :, :-1]
    log_decay = (log_forget + (since - m)).to(q.dtype)
    # One more value for the sum of the keys.
    values, write = F.pad(v, (0, 1), value=1.0), (log_write - m).exp().to(q.dtype)
    y, sums = delta.extend(q, k, values, log_decay, None, write, sums)
    divisor = torch.maximum(y[..., -1:].abs(), (-m).exp().to(q.dtype))
    return y[..., :-1] / divisor, sums, m[:, :, -1:]
