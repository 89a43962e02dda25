"""On CUDA everything is as on the CPU: outputs, gradients, a whole run and its cost."""

import json

import pytest
import torch

from harness.cli import main
from harness.store import Store
from zoo.contract import Size
from zoo.variants import variants

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

FORMS = [(name, causal) for name in variants.names() for causal in (False, True)]
CLAIMED = [
    (name, causal) for name, causal in FORMS if variants.find(name).traits.causal or not causal
]


@pytest.fixture(autouse=True)
def any_kernel_order():
    """Some of CUDA's kernels have no deterministic form; here they need none."""
    torch.use_deterministic_algorithms(False)


def outcome(layer, x, keep):
    """Output at real tokens, and the gradient of the input."""
    x = x.clone().requires_grad_()
    attended = layer(x, x, keep)
    tokens = attended.tokens.masked_fill(~keep[..., None], 0.0)
    total = tokens.square().sum() + sum(attended.losses.values())
    (gradient,) = torch.autograd.grad(total, x)
    return tokens.detach().cpu(), gradient.cpu()


@pytest.mark.parametrize(("name", "causal"), CLAIMED)
def test_a_layer_gives_on_cuda_what_it_gives_on_the_cpu(name, causal):
    size = Size(dim=16, heads=2, max_len=200, causal=causal, dropout=0.0)
    layer = variants.find(name)(size).double().eval()
    x = torch.randn(3, 200, 16, dtype=torch.float64)
    keep = torch.arange(200) < torch.tensor([200, 63, 130])[:, None]
    expected = outcome(layer, x, keep)
    found = outcome(layer.cuda(), x.cuda(), keep.cuda())
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("name", "causal"), CLAIMED)
def test_a_layer_runs_in_bf16(name, causal):
    size = Size(dim=64, heads=2, max_len=512, causal=causal, dropout=0.0)
    layer = variants.find(name)(size).cuda()
    x = torch.randn(2, 512, 64, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        attended = layer(x, x, None)
    total = attended.tokens.float().square().mean() + sum(attended.losses.values())
    total.backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_a_run_on_cuda_leaves_a_whole_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    store = tmp_path / "runs"
    asked = ["--attention", "primal,softmax+primal", "--budget", "smoke", "--device", "cuda"]
    with pytest.raises(SystemExit) as ended:
        main(["run", *asked, "--store", str(store)])
    assert ended.value.code == 0, capsys.readouterr().err
    records, broken = Store(store).read()
    assert [record.status for record in records] == ["ok", "ok"] and not broken
    for record in records:
        assert record.spec.device == "cuda" and record.spec.train.compiled
        assert record.environment.device == torch.cuda.get_device_properties(0).name
        assert record.cost is not None and record.cost.own.peak_bytes > 0
        json.loads(record.model_dump_json())
