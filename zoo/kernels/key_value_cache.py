"""The keys and values of all tokens so far: the state of decoding where none of fixed size exists.

A step is pure: it changes no tensor of the state. It copies the newest keys and values, at most
`RECENT` tokens, and the others once in `RECENT` steps, where it moves the newest to them.

After padded prompts samples have different numbers of tokens. These are the last of the cache, and
entries before them are not read. The state contains their number.

The dtype is the one of the products of the layer: what autocast rounds to bf16 is stored in bf16.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from zoo.contract import Keys, Mask, OneToken, State
from zoo.kernels.precision import product_dtype
from zoo.kernels.real_tokens import count_after, last_tokens

RECENT = 128

Weights = Float[Tensor, "b h 1 m"]
Real = Bool[Tensor, "b 1 1 m"]
Part = Float[Tensor, "b h _ _"]  # Keys or values
Wide = Float[Tensor, "b h n _"]  # Queries or outputs, of which a token may have several


def start(empty: Float[Tensor, "b h 0 e"]) -> State:
    empty = empty.to(product_dtype(empty))
    return (*(empty,) * 4, empty.new_zeros(len(empty), dtype=torch.long))


def append(state: State, k: Keys, v: Keys) -> State:
    keys, values, recent_keys, recent_values, count = state
    recent_keys, recent_values = _join(recent_keys, k), _join(recent_values, v)
    if recent_keys.shape[2] >= RECENT:
        keys, values = _join(keys, recent_keys), _join(values, recent_values)
        recent_keys, recent_values = recent_keys[:, :, :0], recent_values[:, :, :0]
    return keys, values, recent_keys, recent_values, count + 1


def attend(state: State, q: OneToken, weigh: Callable[[Weights, Real], Weights]) -> OneToken:
    # `weigh` makes weights of the products of q and keys; 0 for keys that are not real.
    keys, values, recent_keys, recent_values, count = state
    q = q.to(keys.dtype)
    products = torch.cat([q @ keys.mT, q @ recent_keys.mT], dim=-1)
    weights = weigh(products, _real(count, products.shape[-1])[:, None, None])
    old, new = weights.split([keys.shape[2], recent_keys.shape[2]], dim=-1)
    return old @ values + new @ recent_values


def softmax(products: Weights, real: Real) -> Weights:
    return products.masked_fill(~real, -torch.inf).softmax(-1)


def extend(
    state: State, k: Keys, v: Keys, real: Mask
) -> tuple[Part, Part, Bool[Tensor, "b past"], State]:
    # Cached keys and values, which of them are real, and the cache with more tokens, padding last.
    *parts, count = state
    keys, values = (torch.cat(parts[i::2], dim=2) for i in (0, 1))
    after = [
        last_tokens(_join(old, new), old.shape[2] + new.shape[2], real)
        for old, new in ((keys, k), (values, v))
    ]
    empty = keys[:, :, :0]
    state = *after, empty, empty, count_after(count, k.shape[2], real)
    return keys, values, _real(count, keys.shape[2]), state


def attend_after(
    attend: Callable[..., Tensor], q: Wide, k: Keys, v: Part, real: Mask, keys: Part, values: Part,
    seen: Bool[Tensor, "b past"],
) -> Wide:  # fmt: skip
    # A causal `attend(q, k, v, mask)` that attends to past keys too, if they are `seen`. They get
    # queries of 0: outputs must not depend on earlier queries.
    m, n = keys.shape[2], k.shape[2]
    if not m:
        return attend(q, k, v, real)
    new = seen.new_ones(len(seen), n) if real is None else real
    k, v = (torch.cat([old.to(part.dtype), part], 2) for old, part in ((keys, k), (values, v)))
    return attend(F.pad(q, (0, 0, m, 0)), k, v, torch.cat([seen, new], 1))[:, :, m:]


def _real(count: Tensor, m: int) -> Bool[Tensor, "b m"]:
    return torch.arange(m, device=count.device) >= m - count[:, None]


def _join(cached: Part, new: Part) -> Part:
    return torch.cat([cached, new.to(cached.dtype)], dim=2)
