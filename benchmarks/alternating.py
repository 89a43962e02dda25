"""Implementations timed alternately, so that other load of the machine affects all of them."""

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.claims import Finding, Setting
from harness.measure import quartiles, time_alternately
from harness.records.fields import Quartiles


class AlternatingTimes:
    """Seconds of each of several implementations, one for each round."""

    def __init__(
        self, implementations: Mapping[str, Callable[[], Any]], setting: Setting, rounds: int
    ) -> None:
        """Time the implementations alternately in `rounds` rounds, after two of warm-up."""
        self.rounds = setting.size(rounds, 3)
        calls = list(implementations.values())
        seconds = time_alternately(calls, setting.device, rounds=self.rounds)
        self.seconds = dict(zip(implementations, seconds, strict=True))

    def ratios(self, own: str, other: str) -> list[float]:
        """The time of one implementation over that of another, round by round."""
        pairs = zip(self.seconds[own], self.seconds[other], strict=True)
        return [a / b for a, b in pairs]

    def figures(self, *names: str) -> dict[str, Quartiles]:
        """Milliseconds of implementations."""
        return {f"{name} (ms)": quartiles(1000 * t for t in self.seconds[name]) for name in names}

    def finding(self, name: str, own: str, other: str, setting: str) -> Finding:
        """The finding of the claim `name`: the time of `own` over that of `other`."""
        return Finding(
            name=name,
            setting=f"{setting}; {self.rounds} rounds, alternately",
            ratios=self.ratios(own, other),
            figures=self.figures(own, other),
        )
