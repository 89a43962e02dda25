"""The formulas of the variants, and the table of them: what `test_formulas` compares layers with.

A formula takes a layer and the real tokens of a sample, (n, d), and gives new tokens, (n, d). It
has all n x n weights in memory, or loops over tokens. `attend` of a case is the part between the
projections, of head h: from queries, keys and values, (n, e), to outputs.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tests.zoo.oracle import DIM, HEADS, WIDTH
from zoo.kernels.rotary import apply_rotary


class Case(NamedTuple):
    name: str
    formula: Callable[..., Tensor]
    options: Mapping[str, Any] = {}
    attend: Callable[..., Tensor] | None = None
    random: Mapping[str, float] = {"norm": 0.0}
    outputs: tuple[float, float] = (1e-9, 1e-11)
    slopes: tuple[float, float] = (1e-8, 1e-9)


def split(x: Tensor) -> tuple[Tensor, ...]:
    return x.unflatten(-1, (HEADS, -1)).unbind(1)


def rotated(layer: Any, x: Tensor) -> Tensor:
    if not layer.size.rotary:
        return x
    return apply_rotary(x.reshape(1, -1, *x.shape[-2:])).reshape(x.shape)


def projected(attend: Callable[..., Tensor], layer: Any, x: Tensor, context: Any = None) -> Tensor:
    q, rest = layer.query(x), layer.context(x if context is None else context)
    k, v = (q, rest) if layer.shared_qk else rest.split([q.shape[1], DIM], dim=1)
    heads = zip(*map(split, (q, k, v)), strict=True)
    outputs = [
        attend(layer, h, rotated(layer, q), rotated(layer, k), v)
        for h, (q, k, v) in enumerate(heads)
    ]
    return layer.out(torch.cat(outputs, dim=1))


def distances(n: int) -> Tensor:
    return torch.arange(n)[:, None] - torch.arange(n)


def softmax_map(layer: Any, q: Tensor, k: Tensor, visible: Any = True, bias: Any = 0.0) -> Tensor:
    scores = q @ k.T / q.shape[1] ** 0.5 + bias
    allowed = torch.ones_like(scores, dtype=torch.bool) & visible
    allowed = allowed.tril() if layer.size.causal else allowed
    return scores.masked_fill(~allowed, -torch.inf).softmax(1)


def softmax(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return softmax_map(layer, q, k) @ v


def gated_softmax(layer: Any, x: Tensor, context: Any = None) -> Tensor:
    gates = (1 / (1 + (-layer.gate(x)).exp())).unflatten(-1, (HEADS, -1)).transpose(0, 1)

    def attend(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gates[h] * softmax(layer, h, q, k, v)

    return projected(attend, layer, x, context)


def mean(layer: Any, weights: Tensor, v: Tensor) -> Tensor:
    weights = weights.tril() if layer.size.causal else weights
    total = weights.sum(1, keepdim=True)
    return weights @ v / torch.where(total == 0, 1.0, total)


def linear(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = (torch.where(x > 0, x + 1, x.exp()) for x in (q, k))
    return mean(layer, q @ k.T, v)


def taylor(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = q @ k.T / q.shape[1] ** 0.5
    return mean(layer, 1 + s + s**2 / 2, v)


def performer(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Random features without stabilisation."""
    q, k = (x * WIDTH**-0.25 for x in (q, k))
    w = layer.projection
    q, k = ((x @ w.T - (x * x).sum(1, keepdim=True) / 2).exp() for x in (q, k))
    return mean(layer, q @ k.T, v)


def cosformer(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    cosine = torch.cos(math.pi / 2 * distances(len(q)).double() / layer.size.max_len)
    return mean(layer, q.relu() @ k.relu().T * cosine, v)


def cosine(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = (q @ k.T) / ((q * q).sum(1)[:, None].sqrt() * (k * k).sum(1).sqrt())
    count = torch.full((len(q), 1), len(k)).double()
    if layer.size.causal:
        weights, count = weights.tril(), torch.arange(1, len(q) + 1).double()[:, None]
    return weights @ v / torch.exp(count.log() / (1 + torch.exp(-layer.power[h])))


def yoso(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    cosines = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).T
    weights = (1 - torch.arccos(cosines) / math.pi) ** layer.tau
    return F.normalize((weights.tril() if layer.size.causal else weights) @ v, dim=-1)


def flowformer(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    flows = q.sigmoid() @ k.sigmoid().T
    into, out_of = flows.sum(1, keepdim=True), flows.sum(0, keepdim=True)
    conserved_into = (flows / out_of).sum(1, keepdim=True)
    conserved_out_of = (flows / into).sum(0, keepdim=True)
    competition = conserved_out_of.exp() / conserved_out_of.exp().sum() * len(v)
    return conserved_into.sigmoid() * (flows / into * competition @ v)


def binom(n: float, k: int) -> float:
    return math.prod((n - i) / (i + 1) for i in range(k))


def jacobi(k: int, a: float, b: float, z: Tensor) -> Tensor:
    """The polynomial as the sum of products of powers of (z - 1) / 2 and (z + 1) / 2."""
    return sum(
        binom(k + a, k - s) * binom(k + b, s) * ((z - 1) / 2) ** s * ((z + 1) / 2) ** (k - s)
        for s in range(k + 1)
    )


def agf(layer: Any, x: Tensor) -> Tensor:
    projections = *layer.left_right_value(x).chunk(3, -1), layer.singular(x).sigmoid()
    heads = []
    for u, vh, v, z in zip(*map(split, projections), strict=True):
        terms = enumerate(layer.theta.tanh())
        p = 1 + sum(theta * jacobi(k + 1, layer.a, layer.b, z) for k, theta in terms)
        weights = (rotated(layer, u).softmax(1) * p) @ rotated(layer, vh).softmax(0).T
        heads.append(weights @ v)
    return layer.out(torch.cat(heads, -1))


def fox(layer: Any, x: Tensor) -> Tensor:
    c = layer.forget(x).sigmoid().log().cumsum(0)

    def attend(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return softmax_map(layer, q, k, bias=c[:, None, h] - c[:, h]) @ v

    return projected(attend, layer, x)


def reflected(q, k, w, strength) -> Tensor:
    """The logits k_j^T H_(j+1) ... H_i q_i of one head: queries walk from the last key back.

    Those of i < j are minus infinity.
    """
    columns, rows = [], q[:0]
    for j in reversed(range(len(q))):
        rows = torch.cat([q[j, None], rows])
        columns.append(F.pad(rows @ k[j], (j, 0), value=-torch.inf))
        rows = rows - strength[j] * torch.outer(rows @ w[j], w[j])
    return torch.stack(columns[::-1], 1)


def path(layer: Any, x: Tensor) -> Tensor:
    u = layer.down(x) @ layer.direction.weight.T
    taps = layer.direction_conv.taps
    if taps is not None:
        wider = F.pad(u, (0, 0, len(taps) - 1, 0))
        u = F.silu(sum(taps[t] * wider[t : t + len(x)] for t in range(len(taps))))
    w, strength = map(unit, split(u)), 2 * layer.strength(x).sigmoid()
    forget = torch.zeros(len(x), HEADS) if layer.forget is None else layer.forget(x).sigmoid().log()
    directions, c = [*w], forget.cumsum(0)

    def attend(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        logits = reflected(q, k, directions[h], strength[:, h]) / WIDTH**0.5
        return (logits + c[:, None, h] - c[:, h]).softmax(1) @ v

    return projected(attend, layer, x)


def differential_2(layer: Any, x: Tensor) -> Tensor:
    projections = *layer.query(x).chunk(2, -1), *layer.context(x).chunk(2, -1)
    factor, heads = 1 / (1 + (-layer.gate(x)).exp()), []
    for h, (q1, q2, k, v) in enumerate(zip(*map(split, projections), strict=True)):
        q1, q2, k = (rotated(layer, part) for part in (q1, q2, k))
        second = factor[:, h, None] * softmax_map(layer, q2, k)
        heads.append((softmax_map(layer, q1, k) - second) @ v)
    return layer.out(torch.cat(heads, 1))


def differential_1(layer: Any, x: Tensor) -> Tensor:
    (l1, l2), (m1, m2) = layer.vectors
    at_first = 0.8 - 0.6 * math.exp(-0.3 * 3)
    factor, heads = (l1 @ m1).exp() - (l2 @ m2).exp() + at_first, []
    projections = layer.query(x), *layer.context(x).chunk(2, -1)
    for q, k, v in zip(*map(split, projections), strict=True):
        halves = zip(*((rotated(layer, u) for u in x.chunk(2, 1)) for x in (q, k)), strict=True)
        first, second = (softmax_map(layer, q, k) for q, k in halves)
        y = rms((first - factor * second) @ v)
        heads.append((1 - at_first) * layer.norm.weight * y)
    return layer.out(torch.cat(heads, 1))


def segments(x: Tensor, count: int) -> Tensor:
    index = torch.arange(len(x)) * count // len(x)
    return torch.stack([x[index == i].mean(0) for i in index.unique()])


def nystrom(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q / q.shape[1] ** 0.5
    q_marks, k_marks = (segments(x, layer.landmarks) for x in (q, k))
    a = (q_marks @ k_marks.T).softmax(1)
    z, eye = a.T / (a.sum(0).max() * a.sum(1).max()), torch.eye(len(a)).double()
    for _ in range(layer.iterations):
        z = 0.25 * z @ (13 * eye - a @ z @ (15 * eye - a @ z @ (7 * eye - a @ z)))
    out = (q @ k_marks.T).softmax(1) @ z @ (q_marks @ k.T).softmax(1) @ v
    if layer.conv is None:
        return out
    wider = F.pad(v, (0, 0, 2, 2))
    return out + sum(layer.conv.weight[h, 0, t] * wider[t : t + len(v)] for t in range(5))


def gaussian(x: Tensor, y: Tensor) -> Tensor:
    return torch.exp(-(x[:, None] - y).square().sum(-1) / (2 * x.shape[1] ** 0.5))


def soft(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    marks = segments(q, layer.landmarks)
    a, p = gaussian(marks, marks), gaussian(marks, q)
    z = a / a.sum(1).max() ** 2
    for _ in range(layer.iterations):
        z = 2 * z - z @ a @ z
    return p.T @ z @ p @ v


def linformer(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    matrices = layer.scale * layer.projections[:, min(h, layer.projections.shape[1] - 1)]
    e, f = (matrices[side, :, : len(k)] for side in (0, -1))
    return (q @ (e @ k).T / q.shape[1] ** 0.5).softmax(1) @ (f @ v)


def local(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return softmax_map(layer, q, k, distances(len(q)).abs() <= layer.window) @ v


def sinks(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    visible = distances(len(q)).abs() <= layer.window
    visible = visible | (torch.arange(len(q)) < layer.tokens)
    scores = (q @ k.T / q.shape[1] ** 0.5).exp() * visible
    scores = scores.tril() if layer.size.causal else scores
    logit = 0.0 if layer.sink is None else layer.sink[h].exp()
    return scores @ v / (scores.sum(1, keepdim=True) + logit)


def longformer(layer: Any, x: Tensor) -> Tensor:
    of_global = layer.local(x).chunk(3, -1)
    if layer.separate:
        of_global = layer.global_query(x), *layer.global_context(x).chunk(2, -1)
    g, n, heads = layer.global_tokens, len(x), []
    visible = (distances(n).abs() <= layer.window) | (torch.arange(n) < g)
    projections = *layer.local(x).chunk(3, -1), *of_global
    for q, k, v, q_all, k_all, v_all in zip(*map(split, projections), strict=True):
        q, k, q_all, k_all = (rotated(layer, part) for part in (q, k, q_all, k_all))
        first = softmax_map(layer, q_all[:g], k_all) @ v_all
        heads.append(torch.cat([first, (softmax_map(layer, q, k, visible) @ v)[g:]]))
    return layer.out(torch.cat(heads, -1))


def moba(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query at a time: its block, and the past blocks of the largest products."""
    rows = []
    for i in range(len(q)):
        block = i // layer.block
        means = [k[b * layer.block : (b + 1) * layer.block].mean(0) for b in range(block)]
        ranked = sorted(range(block), key=lambda b: -(q[i] @ means[b]).item())
        chosen = {*ranked[: layer.topk - 1], block}
        visible = [j for j in range(i + 1) if j // layer.block in chosen]
        rows.append((k[visible] @ q[i] / q.shape[1] ** 0.5).softmax(0) @ v[visible])
    return torch.stack(rows)


def shared_softmax(q: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Softmax with q / |q| for keys, over allowed ones; to itself only without other keys."""
    scores = q @ (q / q.norm(dim=-1, keepdim=True)).mT / q.shape[-1] ** 0.5
    others = allowed & ~torch.eye(len(q), dtype=torch.bool)
    visible = torch.where(allowed.sum(-1, keepdim=True) == 1, allowed, others)
    return scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v


def neighbours(layer: Any, q: Tensor) -> Tensor:
    """The tokens that each attends to: the union over rounds, chunk by chunk."""
    allowed = torch.eye(len(q), dtype=torch.bool)
    for rotation in layer.rotations:
        signed = [row + [-x for x in row] for row in (q @ rotation).tolist()]
        hashes = [row.index(max(row)) for row in signed]
        order = sorted(range(len(q)), key=lambda i, hashes=hashes: (hashes[i], i))
        chunks = [order[i : i + layer.bucket] for i in range(0, len(order), layer.bucket)]
        for before, chunk in zip([[], *chunks], chunks, strict=False):
            allowed[torch.tensor(chunk)[:, None], torch.tensor(before + chunk)] = True
    return allowed


def reformer(layer: Any, h: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return shared_softmax(q, v, neighbours(layer, q))


def none(layer: Any, x: Tensor) -> Tensor:
    values = x @ layer.value.weight.T + layer.value.bias
    return values @ layer.out.weight.T + layer.out.bias


def conv(layer: Any, x: Tensor) -> Tensor:
    taps, values = layer.taps, layer.value(x)
    before = len(taps) - 1 if layer.size.causal else len(taps) // 2
    wider = F.pad(values, (0, 0, before, len(taps)))
    return layer.out(sum(taps[t] * wider[t : t + len(x)] for t in range(len(taps))))


def gru(layer: Any, x: Tensor) -> Tensor:
    of, state, states = layer.recurrence, torch.zeros_like(x[0]), []
    for token in x:
        new = (of.weight_ih_l0 @ token + of.bias_ih_l0).chunk(3)
        old = (of.weight_hh_l0 @ state + of.bias_hh_l0).chunk(3)
        reset, keep = torch.sigmoid(new[0] + old[0]), torch.sigmoid(new[1] + old[1])
        state = (1 - keep) * torch.tanh(new[2] + reset * old[2]) + keep * state
        states.append(state)
    return layer.out(torch.stack(states))


def loop(q, k, v, log_decay, erase=None, write=None) -> Tensor:
    """The definition of `zoo.kernels.delta`, (b, h, n, e), one token after the other."""
    state, outputs = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1]), []
    for i in range(q.shape[2]):
        g = log_decay[:, :, i if log_decay.shape[2] > 1 else 0]
        state = g.exp()[..., None] * state
        new = v[:, :, i] if write is None else write[:, :, i] * v[:, :, i]
        if erase is not None:
            new = new - torch.einsum("bhe,bhef->bhf", erase[:, :, i] * k[:, :, i], state)
        state = state + torch.einsum("bhe,bhf->bhef", k[:, :, i], new)
        outputs.append(torch.einsum("bhe,bhef->bhf", q[:, :, i], state))
    return torch.stack(outputs, 2)


def decayed(layer: Any, q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor) -> Tensor:
    q, k = rotated(layer, q), rotated(layer, k)
    y = loop(q, k, v, log_decay)
    if layer.size.causal:
        return y
    back = loop(*(part.flip(2) for part in (q, k, v, log_decay))).flip(2)
    return y + back - (q * k).sum(-1, keepdim=True) * v


def heads(x: Tensor) -> Tensor:
    return x.unflatten(-1, (HEADS, -1)).transpose(0, 1)[None]


def group_norm(layer: Any, y: Tensor) -> Tensor:
    y = y - y.mean(-1, keepdim=True)
    y = y / (y.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    return y.flatten(1) * layer.norm.weight + layer.norm.bias


def gated(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    gate = layer.gate(x)
    return layer.out(gate * gate.sigmoid() * group_norm(layer, y[0].transpose(0, 1)))


def gated_linear(layer: Any, x: Tensor) -> Tensor:
    q, k, v = map(heads, layer.query_key_value(x).chunk(3, -1))
    if getattr(layer, "unit", False):
        q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    logits = layer.decay(x) if hasattr(layer, "decay") else layer.forget(x)
    alpha = heads(logits.sigmoid() ** (1 / layer.temperature))
    return gated(layer, x, decayed(layer, q / WIDTH**0.5, k, v, alpha.log()))


def retention(layer: Any, x: Tensor) -> Tensor:
    q, k, v = map(heads, layer.query_key_value(x).chunk(3, -1))
    theta = 10000.0 ** (-2 * torch.arange(WIDTH // 2).double() / WIDTH)
    angles = torch.arange(len(x)).double()[:, None] * theta
    turn = torch.polar(torch.ones_like(angles), angles)
    q, k = (torch.complex(*part.chunk(2, -1)) * turn for part in (q, k))
    gamma = 1 - 2.0 ** (-5 - torch.arange(HEADS).double()[:, None, None])
    decay = gamma ** distances(len(x)).abs()
    decay = decay.tril() if layer.size.causal else decay
    return gated(layer, x, (decay * (q @ k.mH).real / WIDTH**0.5) @ v)


def rms(y: Tensor) -> Tensor:
    return y / (y.square().mean(-1, keepdim=True) + 1e-5).sqrt()


def hgrn2(layer: Any, x: Tensor) -> Tensor:
    q, v, logits = map(heads, layer.query_key_value(x).chunk(3, -1))
    alpha = layer.lower_bound + (1 - layer.lower_bound) * logits.sigmoid()
    y = decayed(layer, F.silu(q) / WIDTH**0.5, 1 - alpha, v, alpha.log())
    return layer.out(rms(y[0].transpose(0, 1).flatten(1)) * layer.norm.weight)


def steps_of_decay(layer: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    step = heads((1 + (layer.decay.map(x) + layer.decay.bias).exp()).log())
    return -layer.decay.log_rate.exp()[:, None, None] * step, step


def mamba2(layer: Any, x: Tensor) -> Tensor:
    u, k, q = F.silu(layer.query_key_value(x)).split(layer.widths, -1)
    q, k = (rotated(layer, part)[None, None].expand(1, HEADS, -1, -1) for part in (q, k))
    log_decay, step = steps_of_decay(layer, x)
    y = loop(q, k, step * heads(u), log_decay) + layer.skip[:, None, None] * heads(u)
    y = y[0].transpose(0, 1).flatten(1) * F.silu(layer.gate(x))
    return layer.out(rms(y) * layer.norm.weight)


def matrix_memory(q, k, v, i, f) -> Tensor:
    """The outputs of one head of the mLSTM, from logarithms of input gates; without a maximum."""
    memory, total, rows = q.new_zeros(q.shape[1], v.shape[1]), q.new_zeros(q.shape[1]), []
    for t in range(len(q)):
        memory = f[t] * memory + i[t].exp() * torch.outer(k[t], v[t])
        total = f[t] * total + i[t].exp() * k[t]
        rows.append(q[t] @ memory / (total @ q[t]).abs().clamp_min(1))
    return torch.stack(rows)


def mlstm(layer: Any, x: Tensor) -> Tensor:
    q, k, v = map(split, layer.query_key_value(x).chunk(3, -1))
    i, f = (15 * (layer.gates(x) / 15).tanh()).chunk(2, -1)
    q, k = ([rotated(layer, head) for head in heads] for heads in (q, k))
    parts = zip(q, k, v, i.unbind(1), f.sigmoid().unbind(1), strict=True)
    y = [matrix_memory(q, k / WIDTH**0.5, v, i, f) for q, k, v, i, f in parts]
    return layer.out(layer.gate(x).sigmoid() * group_norm(layer, torch.stack(y, 1)))


def slots(q, k, v, alpha) -> Tensor:
    keys, values = q.new_zeros(q.shape[1], alpha.shape[1]), v.new_zeros(alpha.shape[1], v.shape[1])
    rows = []
    for i in range(len(q)):
        keys = keys @ alpha[i].diag() + torch.outer(k[i], 1 - alpha[i])
        values = alpha[i].diag() @ values + torch.outer(1 - alpha[i], v[i])
        rows.append((q[i] @ keys).softmax(0) @ values)
    return torch.stack(rows)


def gsa(layer: Any, x: Tensor) -> Tensor:
    u = layer.query_key_value(x)
    q, k, v = map(split, F.silu(u[:, : 3 * DIM]).chunk(3, -1))
    alpha = split(u[:, 3 * DIM :].sigmoid() ** (1 / layer.temperature))
    q, k = ([rotated(layer, head) for head in heads] for heads in (q, k))
    y = F.silu(torch.cat([slots(q[h], k[h], v[h], alpha[h]) for h in range(HEADS)], 1))
    return layer.out(rms(y) * layer.norm.weight)


def turned(y: Tensor, phi: Tensor) -> Tensor:
    pairs, rest = y.tensor_split([2 * phi.shape[1]], 1)
    pairs = torch.view_as_complex(pairs.unflatten(1, (-1, 2)))
    pairs = pairs * torch.polar(torch.ones_like(phi), phi)
    return torch.cat([torch.view_as_real(pairs).flatten(1), rest], 1)


def mamba3(layer: Any, x: Tensor) -> Tensor:
    u, b, c = layer.query_key_value(x).split(layer.widths, -1)
    t, rate, balance, turn = layer.gates(x).split([HEADS] * 3 + [layer.pairs], -1)
    step = (1 + (t + layer.step_bias).exp()).log()
    alpha, mix = (-(1 + rate.exp()).log() * step).exp(), 1 / (1 + (-balance).exp())
    parts = (b, layer.key_norm, layer.key_bias), (c, layer.query_norm, layer.query_bias)
    outputs = []
    for h, values in enumerate(split(u)):
        phi = (math.pi * turn.tanh() * step[:, h, None]).cumsum(0)
        k, q = (turned(rms(y) * norm.weight + bias[h], phi) for y, norm, bias in parts)
        state, rows = x.new_zeros(k.shape[1], values.shape[1]), []
        for i in range(len(x)):
            if i:
                before = (1 - mix[i, h]) * step[i, h] * torch.outer(k[i - 1], values[i - 1])
                state = alpha[i, h] * (state + before)
            state = state + mix[i, h] * step[i, h] * torch.outer(k[i], values[i])
            rows.append(q[i] @ state + layer.skip[h, 0] * values[i])
        outputs.append(torch.stack(rows))
    gate = layer.gate(x)
    return layer.out(torch.cat(outputs, 1) * gate * gate.sigmoid())


def beta(layer: Any, x: Tensor) -> Tensor:
    return heads((1 + layer.negative) / (1 + (-layer.beta(x)).exp()))


def delta_gates(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    return torch.zeros(1, HEADS, 1, 1).double(), beta(layer, x), beta(layer, x)


def decayed_gates(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    return steps_of_decay(layer, x)[0], beta(layer, x), beta(layer, x)


def channel_gates(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    erase = heads((1 + layer.negative) * layer.erase(x).sigmoid())
    return steps_of_decay(layer, x)[0], erase, heads(layer.write(x).sigmoid())


def unit(x: Tensor) -> Tensor:
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def delta(gates: Callable[..., tuple[Tensor, ...]], layer: Any, x: Tensor) -> Tensor:
    q, k, v = (heads(part) for part in F.silu(layer.query_key_value(x)).chunk(3, -1))
    q, k = rotated(layer, unit(q) / WIDTH**0.5), rotated(layer, unit(k))
    return normed(layer, x, loop(q, k, v, *gates(layer, x)))


def delta_product(layer: Any, x: Tensor) -> Tensor:
    parts = F.silu(layer.query_key_value(x)).chunk(1 + 2 * layer.steps, -1)
    q, *keys_values = (heads(part) for part in parts)
    q, keys = rotated(layer, unit(q) / WIDTH**0.5), [rotated(layer, unit(k))
                                                     for k in keys_values[::2]]  # fmt: skip
    rates = (1 + layer.negative) * layer.beta(x).sigmoid().unflatten(-1, (layer.steps, HEADS))
    alpha = steps_of_decay(layer, x)[0].exp() if layer.decay else torch.ones(1, HEADS, len(x), 1)
    state, rows = x.new_zeros(1, HEADS, WIDTH, WIDTH), []
    for i in range(len(x)):
        state = alpha[:, :, i, :, None] * state
        for k, v, rate in zip(keys, keys_values[1::2], rates[i], strict=True):
            k, v = k[:, :, i, :, None], v[:, :, i, None]
            state = state + rate[:, None, None] * k @ (v - k.mT @ state)
        rows.append(q[:, :, i, None] @ state)
    return normed(layer, x, torch.cat(rows, 2))


def normed(layer: Any, x: Tensor, y: Tensor) -> Tensor:
    y = rms(y[0].transpose(0, 1)) * layer.norm.weight
    return layer.out(y.flatten(1) * (1 if layer.gate is None else layer.gate(x)))


def regressions(q, k, v, alpha, beta, penalty) -> Tensor:
    """The outputs of one head: the normal equations of all tokens so far, each by its inverse."""
    rows = []
    for i in range(len(q)):
        gates = torch.cat([alpha[1 : i + 1].flip(0).cumprod(0).flip(0), alpha.new_ones(1)])
        keys, weights = k[: i + 1], (gates * beta[: i + 1])[:, None]
        system = (weights * keys).T @ keys + penalty.diag()
        rows.append((weights * v[: i + 1]).T @ keys @ system.inverse() @ q[i])
    return torch.stack(rows)


def mesa(layer: Any, x: Tensor) -> Tensor:
    q, k, v = map(split, layer.query_key_value(x).chunk(3, -1))
    q, k = ([rotated(layer, F.normalize(head, dim=-1)) for head in heads] for heads in (q, k))
    alpha, beta = layer.gates(x).sigmoid().chunk(2, -1)
    penalty = (1 + layer.penalty.exp()).log().unflatten(0, (HEADS, WIDTH)) + 0.25
    y = [regressions(q[h], k[h], v[h], alpha[:, h], beta[:, h], penalty[h]) for h in range(HEADS)]
    return gated(layer, x, torch.stack(y)[None])


def level_sums(q, k, v, alpha, scales) -> Tensor:
    """The sums of one head, from all pairs: each has a level, and the gates between both."""
    rows = []
    for i in range(len(q)):
        levels = [min((i ^ j).bit_length(), scales.shape[1] - 1) for j in range(i + 1)]
        gates = alpha[1 : i + 1].flip(0).cumprod(0).flip(0)
        gates = torch.cat([gates, gates.new_ones(1)])
        rows.append((scales[i, levels] * gates * (k[: i + 1] @ q[i])) @ v[: i + 1])
    return torch.stack(rows)


def log_linear(layer: Any, x: Tensor) -> Tensor:
    q, k, v = map(split, layer.query_key_value(x).chunk(3, -1))
    q, k = ([rotated(layer, head) for head in heads] for heads in (q, k))
    alpha = layer.decay(x).sigmoid() ** (1 / layer.temperature)
    scales = split((1 + (layer.level_scale * layer.scale(x)).exp()).log())
    y = [level_sums(q[h] / WIDTH**0.5, k[h], v[h], alpha[:, h], scales[h]) for h in range(HEADS)]
    return gated(layer, x, torch.stack(y)[None])


def erased_sums(r, k, v, w, a, erased) -> Tensor:
    """The outputs of one head of RWKV-7: value x key states, as in the published code."""
    state, rows = r.new_zeros(v.shape[1], k.shape[1]), []
    for i in range(len(r)):
        removed = torch.outer(state @ erased[i], a[i] * erased[i])
        state = state * w[i] - removed + torch.outer(v[i], k[i])
        rows.append(state @ r[i])
    return torch.stack(rows)


def rwkv7(layer: Any, x: Tensor) -> Tensor:
    before = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
    z_r, z_k, z_v, z_w, z_a, z_g = (x + mu * (before - x) for mu in layer.mix)
    r, k, v = layer.query(z_r), layer.key(z_k), layer.value(z_v)
    w = (-math.exp(-0.5) * layer.decay(z_w).sigmoid()).exp()
    a = layer.rate(z_a).sigmoid()
    written, erased = k * (1 + (a - 1) * layer.written), k * layer.erased
    projections = r, written, v, w, a, erased, r * layer.bonus * written
    outputs = []
    for *terms, erased, bonus in zip(*map(split, projections), strict=True):
        y = erased_sums(*terms, F.normalize(erased, dim=1))
        outputs.append((y, bonus.sum(1, keepdim=True) * terms[2]))
    y, bonus = (torch.stack(part, 1) for part in zip(*outputs, strict=True))
    return layer.out(layer.gate(z_g) * (group_norm(layer, y) + bonus.flatten(1)))


def between_projections(name: str, attend: Callable[..., Tensor], **fields: Any) -> Case:
    return Case(name, partial(projected, attend), attend=attend, **fields)


INVERSE = {"outputs": (1e-8, 1e-9), "slopes": (1e-7, 1e-8)}
"""Iterations towards an inverse magnify rounding."""

CASES = [
    between_projections("softmax", softmax),
    between_projections("softmax", softmax, options={"backend": "naive"}),
    *(Case("softmax", gated_softmax, {"gate": gate}) for gate in ("head", "channel")),
    between_projections("linear", linear),
    between_projections("taylor", taylor, options={"feature_dim": 6}),
    between_projections("performer", performer, options={"features": 32}),
    between_projections("cosformer", cosformer),
    between_projections("cosine", cosine, random={"power": 0.0}),
    between_projections("yoso", yoso),
    between_projections("flowformer", flowformer),
    between_projections("nystrom", nystrom, options={"landmarks": 16}, **INVERSE),
    between_projections("nystrom", nystrom, options={"landmarks": 16, "conv": 5}, **INVERSE),
    between_projections("soft", soft, options={"landmarks": 16, "iterations": 12}, **INVERSE),
    *(between_projections("linformer", linformer, options={"rank": 16, "sharing": sharing},
                          random={"projections": 0.0})
      for sharing in ("none", "headwise", "kv")),
    between_projections("local", local, options={"window": 7}),
    between_projections("sinks", sinks, options={"window": 7}),
    *(between_projections("sinks", sinks, options={**options, "learned": True},
                          random={"sink": 0.0})
      for options in ({"window": 16, "tokens": 0}, {"window": 64, "tokens": 9})),
    *(between_projections("moba", moba, options={"block": block, "topk": 2}) for block in (5, 16)),
    between_projections("reformer", reformer, options={"bucket": 16}),
    between_projections("reformer", reformer, options={"bucket": 1, "hashes": 3}),
    between_projections("reformer", reformer, options={"bucket": 1000, "hashes": 1}),
    Case("longformer", longformer, {"window": 7, "global_tokens": 10}),
    Case("longformer", longformer, {"window": 7, "global_tokens": 1, "separate": False}),
    Case("longformer", longformer, {"window": 5, "global_tokens": 0}),
    Case("fox", fox, random={"forget.bias": 2.0}),
    Case("path", path, {"chunk": 16}, random={"strength.bias": 1.0}),
    Case("path", path, {"forget": True, "rank": 0}, random={"forget.bias": 2.0}),
    Case("path", path, {"rank": 3, "taps": 0}),
    Case("differential", differential_2),
    Case("differential", differential_1, {"version": "v1", "depth": 3}),
    Case("agf", agf, {"degree": 6, "a": 1.5, "b": 2.0}, random={"theta": 0.0}),
    Case("agf", agf, {"b": -2.0}, random={"theta": 0.0}),
    Case("none", none),
    Case("conv", conv),
    Case("conv", conv, {"taps": 3}),
    Case("gru", gru),
    Case("gated-linear", gated_linear, {"chunk": 16, "temperature": 1.0}),
    Case("gated-linear", gated_linear),
    Case("ssd", gated_linear),
    Case("ssd", gated_linear, {"unit": True}),
    Case("retention", retention, {"chunk": 16}),
    Case("hgrn2", hgrn2, {"lower_bound": 0.3}),
    Case("mamba2", mamba2, {"state": 6}),
    Case("gsa", gsa, {"slots": 6}),
    Case("gsa", gsa, {"slots": 3, "temperature": 1.0}),
    Case("mlstm", mlstm, random={"norm": 0.0, "gates": 0.0}),
    Case("mamba3", mamba3, {"state": 6, "rotated": 1.0}, random={"norm": 0.0, "bias": 0.0}),
    Case("mamba3", mamba3, {"state": 8, "expand": 1}, random={"skip": 0.0}),
    Case("delta", partial(delta, delta_gates)),
    Case("delta", partial(delta, delta_gates), {"negative": True, "gate": "silu"}),
    Case("delta-product", delta_product),
    Case("delta-product", delta_product,
         {"steps": 3, "negative": False, "forget": False, "gate": "none"}),
    Case("gated-delta", partial(delta, decayed_gates), {"negative": True}),
    Case("kda", partial(delta, decayed_gates)),
    Case("gdn2", partial(delta, channel_gates), {"negative": True}),
    Case("mesa", mesa, random={"norm": 0.0, "penalty": 0.0}, **INVERSE),
    Case("log-linear", log_linear, {"chunk": 16, "levels": 6, "temperature": 1.0},
         random={"norm": 0.0, "level_scale": 0.0}),
    Case("log-linear", log_linear, {"chunk": 1}, random={"norm": 0.0, "level_scale": 0.0}),
    Case("rwkv7", rwkv7,
         random=dict.fromkeys(("norm", "mix", "erased", "written", "bonus"), 0.0)),
]  # fmt: skip
