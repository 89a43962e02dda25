"""Results on CUDA equal those on the CPU: outputs, gradients, and the record of a run."""

import json

import pytest
import torch

import harness
from harness.cli import main
from harness.records.store import Store
from zoo.contract import Attention, Size, Unsupported
from zoo.encoder import EncoderLayer
from zoo.variants import fla, variants
from zoo.variants.softmax import Softmax, xformers_failure

NO_DEVICE = not torch.cuda.is_available()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(NO_DEVICE, reason="no CUDA device")]

# Layers of flash-linear-attention have no CPU form, and no double precision.
LAYERS = [name for name, variant in variants.items() if issubclass(variant, fla.FlashLinear)]
NAMES = [name for name in variants.names() if name not in LAYERS]
CLAIMED = [(name, causal) for name in NAMES for causal in variants.find(name).traits.forms]


@pytest.fixture(autouse=True)
def nondeterministic_kernels():
    """Allow CUDA kernels that have no deterministic form."""
    torch.use_deterministic_algorithms(False)


def output_and_gradient(layer, x, mask):
    """The output at real tokens, and the gradient of the input."""
    x = x.clone().requires_grad_()
    attended = layer(x, x, mask)
    tokens = attended.tokens.masked_fill(~mask[..., None], 0.0)
    total = tokens.square().sum() + sum(attended.losses.values())
    (gradient,) = torch.autograd.grad(total, x)
    return tokens.detach().cpu(), gradient.cpu()


def build(name, size) -> Attention:
    """The variant; the test is skipped if a package that it needs is missing."""
    try:
        return variants.find(name)(size)
    except Unsupported as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "causal"), CLAIMED)
def test_a_layer_gives_the_same_on_cuda_as_on_the_cpu(name, causal):
    size = Size(dim=16, heads=2, max_len=200, causal=causal, dropout=0.0)
    layer = build(name, size).double().eval()
    if "eval is deterministic" in layer.expected_failures:
        pytest.skip(f"{name}: {layer.expected_failures['eval is deterministic']}")
    x = torch.randn(3, 200, 16, dtype=torch.float64)
    mask = torch.arange(200) < torch.tensor([200, 63, 130])[:, None]
    expected = output_and_gradient(layer, x, mask)
    actual = output_and_gradient(layer.cuda(), x.cuda(), mask.cuda())
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize(("name", "causal"), CLAIMED)
def test_a_layer_runs_in_bf16(name, causal):
    size = Size(dim=64, heads=2, max_len=512, causal=causal, dropout=0.0)
    layer = build(name, size).cuda()
    x = torch.randn(2, 512, 64, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        attended = layer(x, x, None)
    total = attended.tokens.float().square().mean() + sum(attended.losses.values())
    total.backward()
    assert x.grad is not None and x.grad.isfinite().all()


@pytest.mark.parametrize("name", ["primal", "softmax"])
def test_an_encoder_layer_trains_compiled_under_autocast(name, no_type_checks):
    sizes = {"dim": 64, "heads": 2, "max_len": 512, "feed_forward": 128}
    layer = EncoderLayer.create(name, **sizes).cuda()
    x, mask = torch.randn(2, 512, 64, device="cuda"), torch.ones(2, 512, device="cuda") > 0
    results = []
    for module in (layer, torch.compile(layer, fullgraph=True)):
        layer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            tokens, losses = module(x, mask)
        (tokens.square().mean() + sum(losses.values())).backward()
        results.append([tokens.detach(), *(p.grad.clone() for p in layer.parameters())])
    torch.testing.assert_close(results[1], results[0], rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("n", [63, 200])
def test_xformers_gives_the_result_of_the_formula(n, padded, causal):
    pytest.importorskip("xformers.ops", reason="xformers is not installed")
    size = Size(dim=64, heads=2, max_len=200, causal=causal, dropout=0.0)
    layer, x = Softmax(size, backend="xformers").cuda(), torch.randn(3, n, 64, device="cuda")
    mask = torch.arange(n) < torch.tensor([n, 0, 5])[:, None] if padded else torch.ones(3, n) > 0
    actual = output_and_gradient(layer, x, mask.cuda())
    naive = Softmax(size, backend="naive").cuda()
    naive.load_state_dict(layer.state_dict())
    # xformers multiplies in TF32 if the device can.
    expected = output_and_gradient(naive, x, mask.cuda())
    torch.testing.assert_close(actual, expected, rtol=1e-2, atol=1e-2)


def test_auto_selects_xformers_if_its_trial_succeeds_and_never_in_double():
    pytest.importorskip("xformers.ops", reason="xformers is not installed")
    layer = Softmax(Size(dim=64, heads=2, max_len=200, causal=False, dropout=0.0))
    x = torch.randn(2, 9, 64, device="cuda")
    reason = xformers_failure(x.device, torch.bfloat16, 32)
    assert layer.backend_for(x.bfloat16()) == ("sdpa" if reason else "xformers")
    assert layer.backend_for(x.double()) == "sdpa"


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_flash_linear_attention_is_causal_and_invariant_to_padding(name):
    if reason := fla.missing_requirement():
        pytest.skip(reason)
    size = Size(dim=128, heads=2, max_len=200, causal=True, dropout=0.0)
    layer = variants.find(name)(size).cuda().bfloat16()
    x = torch.randn(2, 200, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    mask = torch.arange(200, device="cuda") < torch.tensor([200, 130], device="cuda")[:, None]
    tokens = layer(x, x, mask).tokens
    tokens.float().square().mean().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    alone = x[1:, :130].detach()
    torch.testing.assert_close(
        tokens[1:, :130], layer(alone, alone, None).tokens, atol=0.05, rtol=0.05
    )
    other = torch.cat([x[:, :100], 3 * x[:, 100:]], dim=1).detach()
    past = layer(other, other, mask).tokens[:, :100]
    torch.testing.assert_close(past, tokens[:, :100], atol=0.05, rtol=0.05)


def test_a_run_on_cuda_writes_a_complete_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    store = tmp_path / "runs"
    options = ["--attention", "primal,softmax+primal", "--budget", "smoke", "--device", "cuda"]
    with pytest.raises(SystemExit) as exit_:
        main(["run", *options, "--store", str(store)])
    assert exit_.value.code == 0, capsys.readouterr().err
    records, broken = Store(store).read()
    assert [record.status for record in records] == ["ok", "ok"] and not broken
    for record in records:
        assert record.spec.device == "cuda" and record.spec.train.compiled
        assert record.environment.device == torch.cuda.get_device_properties(0).name
        json.loads(record.model_dump_json())
    runs = harness.load(store)
    assert (runs["peak_bytes"] > 0).all() and (runs["tokens_per_second"] > 0).all()
