"""The state of PyTorch that runs share: a run that changes it fails, and no other is affected."""

import os
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import harness.runner
from harness.model import build_model
from harness.torch_state import SETTINGS, unchanged
from zoo.registry import UserError

CHANGES = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the default device": lambda: torch.set_default_device("meta"),
    "the gradient mode": lambda: torch.set_grad_enabled(False),
    "the number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(False),
    "the fill of uninitialised memory": lambda: setattr(
        torch.utils.deterministic, "fill_uninitialized_memory", False
    ),
    "the precision of float32 products": lambda: torch.set_float32_matmul_precision("medium"),
    "the detection of anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "denormal numbers": lambda: torch.set_flush_denormal(True),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
    "oneDNN": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "flash attention": lambda: torch.backends.cuda.enable_flash_sdp(False),
    "efficient attention": lambda: torch.backends.cuda.enable_mem_efficient_sdp(False),
    "plain attention": lambda: torch.backends.cuda.enable_math_sdp(False),
    "cuDNN's benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cuDNN's deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
}
"""For each setting, a change of it."""

PATCHES = {
    "torch.nn.functional.softmax": (F, "softmax", lambda *_, **__: None),
    "torch.nn.functional.gelu": (F, "gelu", F.relu),
    "torch.matmul": (torch, "matmul", torch.mul),
    "torch.manual_seed": (torch, "manual_seed", lambda seed: None),
    "torch.nn.Linear": (nn, "Linear", nn.Identity),
    "torch.nn.modules.linear.Linear.forward": (nn.Linear, "forward", lambda self, x: x),
    "torch.Tensor.softmax": (torch.Tensor, "softmax", lambda self, dim: self),
    "torch.optim.adamw.AdamW.step": (torch.optim.AdamW, "step", lambda self: None),
}
"""Attributes by the name that a message gives them: owner, name and what replaces it."""


def settings() -> dict:
    return {name: setting.read() for name, setting in SETTINGS.items()}


def test_every_setting_has_a_change_here():
    assert CHANGES.keys() == SETTINGS.keys()


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_setting_is_named_and_restored(name):
    before = settings()
    with pytest.raises(UserError) as caught, unchanged("it"):
        CHANGES[name]()
        assert settings()[name] != before[name]
    assert f"({name})" in str(caught.value)
    assert settings() == before


@pytest.mark.parametrize("name", PATCHES)
def test_a_replaced_attribute_is_named_and_restored(name):
    owner, attribute, other = PATCHES[name]
    before, had = getattr(owner, attribute), attribute in vars(owner)
    with pytest.raises(UserError) as caught, unchanged("it"):
        setattr(owner, attribute, other)
    assert f"({name})" in str(caught.value)
    assert getattr(owner, attribute) is before and (attribute in vars(owner)) == had


def test_what_pytorch_replaces_itself_is_no_change():
    with unchanged("it"):
        layer = nn.Linear(2, 2)
        torch.compile(layer, backend="eager")(torch.ones(1, 2)).sum().backward()
        # At its first use, the class of an optimiser gets another method `step`.
        type("Fresh", (torch.optim.AdamW,), {})(layer.parameters()).step()


def test_another_error_is_raised_as_it_is_and_the_state_restored():
    before = settings()
    with pytest.raises(ZeroDivisionError), unchanged("it"):
        torch.set_default_dtype(torch.float64)
        raise ZeroDivisionError
    assert settings() == before


def test_a_run_that_changes_the_state_fails_and_the_next_one_is_not_affected(
    plan, store, run_here, monkeypatch
):
    expected, norm = run_here(plan(seed=1)).final, F.layer_norm

    def build(*arguments):
        model = build_model(*arguments)
        model.register_forward_hook(lambda *_: setattr(F, "layer_norm", partial(norm)))
        torch.backends.mkldnn.enabled = False
        return model

    with monkeypatch.context() as patch:
        patch.setattr(harness.runner, "build_model", build)
        failed = run_here(plan(steps=1))
    assert (failed.status, failed.final) == ("failed", None)
    assert "(oneDNN, torch.nn.functional.layer_norm)" in failed.reason
    store.path(plan(seed=1).spec).unlink()
    again = run_here(plan(seed=1)).final
    assert again.score == expected.score and again.dev == expected.dev


PLUG_IN = """
import os
import torch
from zoo.contract import Traits
from zoo.projected import ProjectedAttention
{}

class Foreign(ProjectedAttention):
    "Fails, and says in which process."

    traits = Traits(causal=False, cross=True, linear=True, stochastic=False, recurrent=False)

    def attend(self, q, k, v, mask):
        raise RuntimeError(f"process {{os.getpid()}}")
"""


@pytest.mark.slow
def test_every_run_of_a_plug_in_has_a_process_of_its_own(call, store, install):
    folder = install({"zoo.variants": {"foreign": "foreign_attention:Foreign"}})
    (folder / "foreign_attention.py").write_text(PLUG_IN.format(""))
    argv = ["run", "-a", "foreign", "-t", "majority", "--budget", "smoke", "--seeds", "0,1"]
    assert call(*argv)[0] == 1
    reasons = [record.reason for record in store.read()[0]]
    assert len(set(reasons)) == 2 and f"RuntimeError: process {os.getpid()}" not in reasons
    assert all(reason.startswith("RuntimeError: process ") for reason in reasons)


def test_a_plug_in_that_changes_the_state_when_it_is_imported_is_rejected(call, store, install):
    folder = install({"zoo.variants": {"patcher": "patching_attention:Foreign"}})
    line = "torch.nn.functional.gelu = torch.nn.functional.relu"
    (folder / "patching_attention.py").write_text(PLUG_IN.format(line))
    before = F.gelu
    code, out, err = call("run", "-a", "patcher", "-t", "majority", "--budget", "smoke")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "'patcher'" in err and "(torch.nn.functional.gelu)" in err
    assert F.gelu is before and not store.folder.exists()
