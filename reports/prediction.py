"""The cost of a model by depth and width, from measured costs of others.

A training step takes what the rest of the model takes and, for each layer, the same: the cost is
linear in depth, and two depths determine it. Between two measured widths it is taken to be linear
in logarithms. Nothing is extrapolated in width or length. Prefill and decoding are measured for
layers alone: a model costs what its attention layers cost.

`python -m benchmarks prediction` measures the error.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

VALUES = ("seconds", "seconds.q1", "seconds.q3", "memory")
"""What is predicted, of one sample."""

DEPTHS = (1, 4)
"""The depths that are measured where a model has no prediction."""


class Model(NamedTuple):
    """Layers, and model width."""

    depth: int
    width: int


def of_model(costs: "pd.DataFrame", model: Model, precision: str) -> "pd.DataFrame":
    """Costs of one sample of a model, with the columns of a frame of costs, a line each.

    Args:
        costs: as a frame, of one machine, layers and models.
        model: whose cost.
        precision: of the matrix products.
    """
    import pandas as pd

    done = costs[(costs["status"] == "ok") & (costs["precision"] == precision)]
    samples = done.assign(**{name: done[name] / done["batch"] for name in VALUES[:3]})
    samples["memory"] = done["memory"] / done["memory_batch"]
    predicted, names = [], ["row", "attention", "pass", "causal", "length", "level"]
    for keys, lines in samples.groupby(names):
        by_width = {
            int(same["dim"].iloc[0]): values
            for _, same in lines.groupby("dim")
            if (values := _at_depth(same, model.depth)) is not None
        }
        values = _at_width(by_width, model.width)
        if values is not None:
            predicted.append(
                dict(zip(names, keys, strict=True)) | dict(zip(VALUES, values, strict=True))
            )
    shared = {"status": "ok", "ratio": np.nan, "batch": 1, "memory_batch": 1}
    machine = {name: done[name].iloc[0] for name in ("device", "machine", "threads") if len(done)}
    return pd.DataFrame(predicted, columns=[*names, *VALUES]).assign(**shared, **machine)


def _at_depth(costs: "pd.DataFrame", depth: int) -> np.ndarray | None:
    """The values at a depth; None for a model that is measured at fewer than two depths."""
    if (costs["level"] == "layer").all():
        layers = costs[costs["pass"].isin(["prefill", "decode"])]
        return depth * layers[[*VALUES]].min().to_numpy() if len(layers) else None
    means = costs.groupby("depth")[[*VALUES]].min()
    if len(means) < 2:
        return None
    line = np.polyfit(means.index.to_numpy(float), means.to_numpy(), 1)
    found = line[0] * depth + line[1]
    return found if (found > 0).all() else None


def _at_width(values: dict[int, np.ndarray], width: int) -> np.ndarray | None:
    """Between the measured widths on either side, linear in logarithms; None outside of them."""
    below = [measured for measured in values if measured <= width]
    above = [measured for measured in values if measured >= width]
    if not below or not above:
        return None
    first, last = max(below), min(above)
    share = np.log(width / first) / np.log(last / first) if last > first else 0.0
    return values[first] ** (1 - share) * values[last] ** share
