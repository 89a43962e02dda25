"""The Triton kernels on CUDA: half precision, the choice of the backend, and repeatability.

`tests/zoo/test_cosine_map_fused.py` runs on CUDA too where there is a device.
"""

import pytest
import torch

from tests.zoo.test_cosine_map import inputs, run
from zoo.contract import Size
from zoo.kernels.cosine_map import fused, plain
from zoo.variants.primal import Primal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.02), ("float32", 1e-5)])
@pytest.mark.parametrize("n", [63, 1000, 4096])
def test_kernels_equal_the_definition_in_float64(n, dtype, tolerance, padded):
    exact = [part.to(getattr(torch, dtype)).double() for part in inputs(n, width=32, dim=64)]
    mask = (torch.rand(3, n) < 0.6).cuda() if padded else None
    expected = run(plain, [part.detach().cuda().requires_grad_() for part in exact], mask)
    copies = [part.detach().cuda().to(getattr(torch, dtype)).requires_grad_() for part in exact]
    actual = run(fused, copies, mask)
    again = run(fused, copies, mask)
    for one, same, other in zip(actual, again, expected, strict=True):
        assert torch.equal(one, same)
        assert (one.double() - other).norm() <= tolerance * other.norm()


@pytest.mark.parametrize("autocast", [False, True])
def test_auto_is_triton_and_gives_what_folded_gives(autocast):
    size = Size(dim=64, heads=2, max_len=1000, causal=False, dropout=0.0)
    x, tokens = torch.randn(2, 1000, 64, device="cuda"), {}
    with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
        for backend, runs in (("auto", "triton"), ("folded", "folded")):
            torch.manual_seed(1)
            layer = Primal(size, backend=backend).cuda()
            assert layer.backend_for(x) == runs
            tokens[backend] = layer(x, x, None).tokens.float()
        assert layer.double().backend_for(x.double()) == "folded"
    difference = (tokens["auto"] - tokens["folded"]).norm() / tokens["folded"].norm()
    assert difference < (0.02 if autocast else 1e-5)
