"""The Triton kernels of the map equal its definition in float64, forward and backward.

On a machine without a CUDA device they run in Triton's interpreter.
"""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from tests.zoo.oracle import DIM, ragged, size
from tests.zoo.test_cosine_map import call, inputs, padding, run
from zoo.contract import Unsupported
from zoo.cost import flops
from zoo.kernels.cosine_map import fused, plain, triton_failure
from zoo.variants.primal import Primal

pytest.importorskip("triton")

from zoo.kernels import cosine_map_fused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def few(n: int, batch: int = 1) -> list[Tensor]:
    return inputs(n, maps=batch, batch=batch, groups=2)


def compare(leaves, groups, mask, with_gram=True, dtype=torch.float32, rtol=2e-6) -> None:
    """Assert that kernels and definition agree, relative to the largest entry of each result."""
    expected = run(plain, leaves, mask, with_gram, groups)
    copies = [part.detach().to(DEVICE, dtype).requires_grad_() for part in leaves]
    actual = run(fused, copies, None if mask is None else mask.to(DEVICE), with_gram, groups)
    for result, exact in zip(actual, expected, strict=True):
        assert result.shape == exact.shape
        atol = rtol * exact.abs().max().item() if exact.numel() else 0.0
        torch.testing.assert_close(result.double().cpu(), exact, rtol=0, atol=atol)


@pytest.mark.parametrize(
    ("n", "maps", "padded", "with_gram"), [(63, 2, True, True), (1, 1, False, False)]
)
def test_kernels_equal_the_definition_forward_and_backward(n, maps, padded, with_gram):
    leaves, mask = inputs(n, maps=maps, batch=2), padding(2, n) if padded else None
    if padded:
        leaves[0].data[~mask] = 1e8
    else:  # a zero vector
        leaves[0].data[:], leaves[2].data[:] = 0.0, 0.0
    compare(leaves, 4, mask, with_gram)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "n", "dim", "groups", "width", "shared", "padded", "with_gram"),
    [
        (1, 100, 8, 2, 16, True, False, True), (2, 63, 20, 4, 8, False, True, True),
        (3, 64, 32, 2, 20, True, True, False), (2, 1, 20, 2, 32, False, False, True),
        (2, 100, 32, 4, 20, False, False, False),
    ],
)  # fmt: skip
def test_kernels_are_exact_at_every_shape(batch, n, dim, groups, width, shared, padded, with_gram):
    maps = 1 if shared else batch
    leaves = inputs(n, maps=maps, width=width, batch=batch, dim=dim, groups=groups)
    compare(leaves, groups, padding(batch, n) if padded else None, with_gram)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_programs_and_sums_of_halves_are_fp32(monkeypatch):
    for programs in (1, 3):
        monkeypatch.setattr(cosine_map_fused, "PROGRAMS", programs)
        compare(few(180, 2), 2, padding(2, 180))
    compare(few(180, 2), 2, None, dtype=torch.float16, rtol=2e-3)
    leaves = [100 * part.detach().half() for part in few(200)]
    _, grams = call(fused, [part.to(DEVICE) for part in leaves], groups=2)
    assert grams.dtype == torch.float32
    lengths = grams.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(lengths, torch.full_like(lengths, 200), rtol=1e-3, atol=0)


@pytest.mark.slow
def test_the_operator_is_registered_in_full():
    leaves = [part.detach().float().to(DEVICE) for part in few(9, 2)]
    leaves = [part.requires_grad_() for part in leaves]
    mask = padding(2, 9).to(DEVICE)
    torch.library.opcheck(cosine_map_fused.cosine_map, (*leaves, 2, mask, True))


def test_the_products_that_kernels_compute_are_counted():
    (batch, n, dim, groups, width), leaves = (2, 9, 6, 2, 5), few(9, 2)
    leaves = [part.detach().float().to(DEVICE).requires_grad_() for part in leaves]
    product, gram = batch * n * dim * groups * width, batch * n * groups * width * width
    assert flops(lambda: call(fused, leaves, groups=groups)) == 2 * (2 * product + gram)
    assert flops(lambda: call(fused, leaves, with_gram=False, groups=groups)) == 2 * 2 * product
    # The projection, and the gradient of its result, in both kernels of the backward pass; then
    # the gradients of x, weight and map.
    both = flops(lambda: run(fused, leaves, groups=groups))
    assert both == 2 * (2 * product + gram) + 2 * (2 * (2 * product + gram) + 3 * product)


def layer(backend: str) -> Primal:
    torch.manual_seed(5)
    return Primal(size(max_len=100), rank=3, rank_multi=5, backend=backend).to(DEVICE)


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_the_layer_by_triton_is_the_folded_one(padded):
    x = torch.randn(2, 63, DIM, device=DEVICE, requires_grad=True)
    mask = ragged(63).to(DEVICE) if padded else None
    results = []
    for backend in ("triton", "folded"):
        module = layer(backend)
        assert module.backend_for(x) == backend
        tokens, losses = module(x, x, mask)
        loss = tokens.square().sum() + losses["ksvd"]
        gradients = torch.autograd.grad(loss, [x, *module.parameters()])
        results.append([tokens, losses["ksvd"], *gradients, module.eval()(x, x, mask).tokens])
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_triton_rejects_double_precision_transforms_and_widths_without_a_kernel(
    monkeypatch,
):
    module, x = layer("triton"), torch.randn(2, 9, DIM, device=DEVICE)
    with pytest.raises(Unsupported, match=r"cannot run: its kernels have no form for function"):
        torch.func.vmap(lambda each: module(each[None]).tokens)(x)
    with pytest.raises(Unsupported, match=r"cannot run: .* fp32, and the tokens are .*float64"):
        module.double()(x.double())
    monkeypatch.setattr(cosine_map_fused, "_arguments", lambda *_: 1 / 0)
    reason = triton_failure(torch.zeros(1, 8, 7, device=DEVICE), 3, 9)
    assert reason == "ZeroDivisionError: division by zero"


COMPILE = """
import sys
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from zoo.kernels import cosine_map_triton

CONSTANTS = {
    "GROUPS": 4, "TILE": 64, "DIM": 64, "WIDTH": 32, "TINY": 1e-12, "MASKED": True, "GRAM": True
}
SUMS = ["grams", "d_grams"], ["d_grams"], ["d_grams", "d_weight", "d_bias", "d_output_map"]
NAMES = "forward", "backward_tokens", "backward_parameters"
for name, sums in zip(NAMES, SUMS, strict=True):
    kernel = getattr(cosine_map_triton, name)
    signature = {argument: "*" + sys.argv[1] for argument in kernel.arg_names}
    signature |= {argument: "*fp32" for argument in sums if argument in signature}
    signature |= {argument: "i32" for argument in ("n", "d", "p", "map_stride", "tiles")}
    signature |= {"mask": "*u8"} | {argument: "constexpr" for argument in CONSTANTS}
    signature = {argument: signature[argument] for argument in kernel.arg_names}
    compiled = compile(
        ASTSource(kernel, signature, constexprs=CONSTANTS), target=GPUTarget("cuda", 90, 32)
    )
    print(name, compiled.metadata.shared)
"""


@pytest.mark.slow
def test_kernels_compile_for_sm_90_within_its_shared_memory(tmp_path):
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    command = [sys.executable, "-c", COMPILE, "bf16"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    used = dict(line.split() for line in done.stdout.splitlines())
    assert set(used) == {"forward", "backward_tokens", "backward_parameters"}
    assert max(map(int, used.values())) < 228 * 1024
