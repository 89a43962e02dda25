"""Mechanisms on small inputs whose outputs were computed by hand-written loops in float64.

Inputs are of one head, [token][channel]. Outputs are rounded to 6 decimals. Every case was also
computed by the code that the authors of the mechanism publish.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.kernels import eager, path, slots
from zoo.variants.mamba3 import rotate, trapezoid
from zoo.variants.mlstm import memory
from zoo.variants.softmax import gated, naive

CASES = {
    case["name"]: case
    for case in json.loads((Path(__file__).parent / "golden.json").read_text())["cases"]
}


def heads(value):
    if not isinstance(value, list):
        return value
    array = torch.tensor(value, dtype=torch.float64)
    return (array[:, None] if array.ndim == 1 else array)[None, None]


def zeros(*shape: int) -> Tensor:
    return torch.zeros(1, 1, *shape, dtype=torch.float64)


def path_outputs(q, k, v, w, beta, scale, log_f=None) -> dict[str, Tensor]:
    out, keys = path.attend(scale * q, k, v, w, beta, log_f, chunk=2)
    return {"out": out, "cached_keys": keys}


def mamba3_outputs(
    C, B, x, dt, A, z=None, trap_logit=None, angle_raw=None, C_bias=None, B_bias=None, D=0.0
) -> dict[str, Tensor]:
    balance = torch.ones_like(dt) if trap_logit is None else trap_logit.sigmoid()
    turn = zeros(len(dt[0, 0]), 0) if angle_raw is None else angle_raw.tanh()
    angle = (math.pi * turn * dt).cumsum(2)
    q, k = (
        rotate(part if bias is None else part + bias.mT, angle.cos(), angle.sin())
        for part, bias in ((C, C_bias), (B, B_bias))
    )
    start = zeros(k.shape[-1], x.shape[-1]), k[:, :, :1] * 0, x[:, :, :1] * 0
    y, *ends = trapezoid(q, k, x, A * dt, balance * dt, (1 - balance) * dt, *start)
    state, key, value = ends
    y = y + D * x
    return {
        "out": y if z is None else y * F.silu(z), "out_before_gate": y, "h": state.mT,
        "k_state": key.mT, "v_state": value.mT, "angle": angle[:, :, -1:],
    }  # fmt: skip


def gated_outputs(q, k, v, gate_logit, scale) -> dict[str, Tensor]:
    # `naive` scales by the root of the width, and values are as wide as keys.
    wider = F.pad(v, (0, q.shape[-1] - v.shape[-1]))
    out = naive(q * scale * q.shape[-1] ** 0.5, k, wider, None, True, 0.0)[..., : v.shape[-1]]
    return {"out": gated(out, gate_logit), "out_ungated": out}


def mlstm_outputs(q, k, v, i_preact=None, f_preact=None, i_raw=None, f_raw=None, cap=0.0):
    if i_raw is not None:
        i_preact, f_preact = (cap * (raw / cap).tanh() for raw in (i_raw, f_raw))
    start = zeros(k.shape[-1], v.shape[-1] + 1), zeros(1, 1)
    scaled = k * k.shape[-1] ** -0.5
    out, sums, m = memory(q, scaled, v, i_preact, F.logsigmoid(f_preact), *start)
    return {"out": out, "C": sums[..., :-1], "n": sums[..., -1:], "m": m}


def gsa_outputs(q, k, v, scale, f_logit=None, damping=1.0, s=None, log_alpha=None):
    if f_logit is not None:
        log_alpha = F.logsigmoid(f_logit) / damping
        s = -torch.expm1(log_alpha)
    start = zeros(s.shape[-1], k.shape[-1]), zeros(s.shape[-1], v.shape[-1])
    out, keys, values = slots.extend(scale * q, k, v, s, log_alpha, *start, chunk=2)
    return {"out": out, "Hk": keys.mT, "Hv": values}


OUTPUTS = {
    "path": path_outputs, "mamba3": mamba3_outputs, "gated": gated_outputs, "mlstm": mlstm_outputs,
    "gsa": gsa_outputs,
}  # fmt: skip


@pytest.mark.parametrize("chunks", [False, True], ids=["by token", "in chunks"])
@pytest.mark.parametrize("name", CASES)
def test_outputs_and_states_are_those_of_the_file(name, chunks, monkeypatch):
    if chunks:
        monkeypatch.setattr(eager, "on_cpu", lambda x: False)
    case = CASES[name]
    inputs = {key: heads(value) for key, value in case["inputs"].items()}
    actual, compared = OUTPUTS[name.split("_")[0]](**inputs), 0
    for key, expected in case["outputs"].items():
        if key in actual:
            wide = torch.as_tensor(expected, dtype=torch.float64)
            torch.testing.assert_close(actual[key].reshape(wide.shape), wide, rtol=0, atol=2e-6)
            compared += 1
    assert compared
