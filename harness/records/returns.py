"""The return of a policy in each test episode."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from harness.records.spec import Frozen

Return = Annotated[float, Field(gt=-1e15, lt=1e15)]
"""A sum of rewards, or a normalised one."""

MOST_EPISODES = 10**6
"""Episodes of the largest test that a record may have."""


class EpisodeReturns(Frozen):
    """The returns of rollouts, one for each test episode; these are the same in all runs.

    Attributes:
        returns: the sum of the rewards of each episode.
        random: the return that is 0 on the normalised scale, that of a random policy.
        expert: the return that is 100.
    """

    returns: Annotated[tuple[Return, ...], Field(min_length=1, max_length=MOST_EPISODES)]
    random: Return
    expert: Return

    @property
    def metric(self) -> Literal["normalised return"]:
        """What is shown of them."""
        return "normalised return"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Each episode is a cluster of one value."""
        return (1,) * len(self.returns)

    @property
    def compared(self) -> tuple[float, ...]:
        """The normalised return of each episode: 100 (return - random) / (expert - random)."""
        span = self.expert - self.random
        return tuple(100 * (value - self.random) / span for value in self.returns)

    @property
    def score(self) -> float:
        """The mean normalised return."""
        return sum(self.compared) / len(self.returns)

    @model_validator(mode="after")
    def _ordered(self) -> "EpisodeReturns":
        if not self.random < self.expert:
            raise ValueError(f"random={self.random} is not below expert={self.expert}")
        return self
