"""Sums token by token equal those in chunks, forward and backward."""

from functools import partial

import pytest
import torch

import zoo
from zoo.cost import flops
from zoo.kernels import eager, recurrence
from zoo.kernels.delta import decayed_chunks
from zoo.kernels.recurrence import token_sums
from zoo.variants.retention import log_gamma


def inputs(n, width=5, dtype=torch.float64):
    q, k, v = (torch.randn(2, 3, n, width, dtype=dtype) for _ in range(3))
    log_decay = (
        -torch.rand(2, 3, n, width, dtype=dtype) * torch.tensor([0.01, 1.0, 50.0])[:, None, None]
    )
    return [x.requires_grad_() for x in (q, k, v, log_decay.to(dtype))]


def definition(causal, q, k, v, log_decay):
    log_decay = log_decay.expand(-1, -1, q.shape[2], -1)
    return decayed_chunks(q, k, v, log_decay, chunk=4, causal=causal)


def results(function, parts):
    """The sums, and gradients of a total in which every entry has its own weight."""
    out = function(*parts)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(out)
    return [out, *torch.autograd.grad((out * weights).sum(), [x for x in parts if x.requires_grad])]


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])
@pytest.mark.parametrize("n", [1, 2, 63, 100])
def test_sums_and_gradients_are_those_of_the_definition(n, causal):
    parts, defined = inputs(n), partial(definition, causal)
    kernel = partial(token_sums, fail, causal)
    torch.testing.assert_close(
        results(kernel, parts), results(defined, parts), rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])
def test_one_decay_for_each_head_needs_no_gradient(causal):
    *parts, _ = inputs(63)
    log_decay = log_gamma(3)[None, :, None, None]
    kernel = partial(token_sums, fail, causal)
    expected = results(partial(definition, causal), [*parts, log_decay])
    torch.testing.assert_close(results(kernel, [*parts, log_decay]), expected, rtol=1e-9, atol=1e-9)


def test_a_head_is_the_same_on_any_number_of_threads(set_threads):
    parts, kernel = inputs(40, dtype=torch.float32), partial(token_sums, fail, False)
    set_threads(1)
    one = results(kernel, parts)
    set_threads(4)
    assert all(map(torch.equal, results(kernel, parts), one))


def test_gradients_can_be_differentiated_again():
    parts = inputs(6, width=2)
    kernel = partial(token_sums, partial(definition, False), False)
    assert torch.autograd.gradgradcheck(kernel, parts, atol=1e-4, rtol=1e-3, fast_mode=True)


def test_half_precision_and_other_devices_take_the_definition(monkeypatch):
    parts, called = inputs(4, dtype=torch.bfloat16), []
    token_sums(lambda *given: called.append(given) or given[0], True, *parts)
    monkeypatch.setattr(eager, "on_cpu", lambda x: False)
    token_sums(lambda *given: called.append(given) or given[0], True, *inputs(4))
    assert len(called) == 2 and (torch.float32, torch.float64) == recurrence.DTYPES


def fail(*parts):
    raise AssertionError("the definition was computed")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "all"])
def test_its_operations_are_counted(causal):
    parts = inputs(7)
    counted = flops(lambda: token_sums(fail, causal, *parts).sum().backward())
    # 2 samples, 3 heads, 7 tokens of width 5: two products forward, and five backward.
    assert counted == 2 * 3 * 7 * 2 * 5**2 * (2 + 5) * (1 if causal else 2)


def test_the_backend_is_named():
    layer = zoo.create("retention", dim=8, heads=2, max_len=9)
    assert layer.backend_for(torch.empty(1, 9, 8)) == "recurrent"
    assert layer.backend_for(torch.empty(1, 9, 8, device="meta")) == "chunked"
