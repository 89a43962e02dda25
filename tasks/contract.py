"""What a task is: three splits of whole tensors, and what its numbers mean.

Axis letters in every shape of this package: `n` examples, `b` examples of a batch, `t` documents of
an example (1, or 2 where two are compared), `s` stored documents, `l` tokens of a document.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from zoo.registry import Value, options_of

SplitName = Literal["train", "dev", "test"]

SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")


@dataclass(frozen=True)
class Batch:
    """Some examples, padded to the task's length.

    Attributes:
        tokens: (b, t, l), int64; what stands at padded positions means nothing.
        keep: (b, t, l), True for real tokens; None where the split has no padding at all.
        targets: (b,), the class of each example.
    """

    tokens: Int[Tensor, "b t l"]
    keep: Bool[Tensor, "b t l"] | None
    targets: Int[Tensor, " b"]


@dataclass(frozen=True)
class Split:
    """A whole split in a few tensors, small enough to stay on the device.

    Each document is stored once; an example names the documents that it shows.

    Attributes:
        documents: (s, l), in the smallest integer type that holds the vocabulary.
        lengths: (s,), int32, the number of real tokens of each document, which come first.
        rows: (n, t), int32, the documents of each example.
        targets: (n,), int64, the class of each example.
        padded: whether any document is shorter than l.
    """

    documents: Shaped[Tensor, "s l"]
    lengths: Int[Tensor, " s"]
    rows: Int[Tensor, "n t"]
    targets: Int[Tensor, " n"]
    padded: bool

    @classmethod
    def single(
        cls,
        documents: Shaped[Tensor, "n l"],
        lengths: Int[Tensor, " n"],
        targets: Int[Tensor, " n"],
    ) -> "Split":
        """A split whose examples show one document each, in order."""
        rows = torch.arange(len(documents), dtype=torch.int32)[:, None]
        padded = bool((lengths < documents.shape[1]).any())
        return cls(documents, lengths.int(), rows, targets.long(), padded)

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.targets)

    def to(self, device: torch.device | str) -> "Split":
        """The same split with its tensors on `device`."""
        moved = (t.to(device) for t in (self.documents, self.lengths, self.rows, self.targets))
        return type(self)(*moved, padded=self.padded)

    def gather(self, examples: Int[Tensor, " b"]) -> Batch:
        """The examples at those indices, gathered on the device without a host synchronisation."""
        rows = self.rows[examples]
        tokens = self.documents[rows].long()
        keep = None
        if self.padded:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
            keep = positions < self.lengths[rows][..., None]
        return Batch(tokens, keep, self.targets[examples])


class Task(ABC):
    """A versioned data set with a fixed question.

    A subclass is built as `TheTask(*, option=default, ...)`: the signature is the schema of its
    options, and each option is kept as an attribute of the same name.

    Attributes:
        name: the registered name, without version.
        version: raised when the data or the question change: two versions are never compared.
        classes: number of classes.
        vocabulary: number of token values, padding included; every token is below it.
        max_len: l, the length that documents are padded to.
        documents: t, documents an example.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    classes: int
    vocabulary: int
    max_len: int
    documents: int = 1

    @abstractmethod
    def load(self, split: SplitName) -> Split:
        """The whole split, on the CPU, from the cache (generated there first, where it can be).

        Raises:
            Refused: the data are missing or damaged; the message says how to get them.
        """

    @property
    def options(self) -> dict[str, Value]:
        """The value of every option."""
        return {name: getattr(self, name) for name in options_of(type(self))}

    @property
    def key(self) -> str:
        """`name@version`, and behind it the options that differ from the defaults."""
        schema = options_of(type(self))
        changed = [f"{n}={v}" for n, v in self.options.items() if v != schema[n].default]
        return f"{self.name}@{self.version}" + (f"[{','.join(changed)}]" if changed else "")


def floors(task: Task) -> Mapping[str, float]:
    """Test accuracies in [0, 1] without a model: `chance`, `majority` (train's commonest class)."""
    commonest = task.load("train").targets.bincount(minlength=task.classes).argmax()
    majority = (task.load("test").targets == commonest).double().mean().item()
    return {"chance": 1.0 / task.classes, "majority": majority}
