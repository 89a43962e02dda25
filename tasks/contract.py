"""What a task is: three splits of whole tensors, and what its numbers mean.

Axis letters in every shape of this package: `n` examples, `b` examples of a batch, `t` documents of
an example (1, or 2 where two are compared), `s` stored documents, `l` tokens of a document, `a`
answers that an example asks for at tokens of its own; without such an axis it asks for one, of the
whole; `c` candidates for an answer that an example shows.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from tasks.answers import CLASSES, Answers
from zoo.registry import Value, built, options_of

SplitName = Literal["train", "dev", "test"]

SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")

CHUNK = 4096
"""Documents that are looked at together: what is made of them stays small beside the split."""


@dataclass(frozen=True)
class Batch:
    """Some examples, padded to the task's length.

    Attributes:
        tokens: (b, t, l), int64; what stands at padded positions means nothing.
        mask: (b, t, l), True for real tokens; None where the split has no padding at all.
        targets: (b,), the answer to each example; (b, a) where tokens are asked.
        target_positions: (b, a), the positions whose tokens are to give the answers; None where the whole is.
    """

    tokens: Int[Tensor, "b t l"]
    mask: Bool[Tensor, "b t l"] | None
    targets: Shaped[Tensor, "b ..."]
    target_positions: Int[Tensor, "b a"] | None = None


@dataclass(frozen=True)
class Split:
    """A whole split in a few tensors, small enough to stay on the device.

    Each document is stored once; an example names the documents that it shows.

    Attributes:
        sequences: (s, l), in the smallest integer type that holds the vocabulary.
        lengths: (s,), int32, the number of real tokens of each document, which come first.
        sequence_ids: (n, t), int32, the sequences of each example.
        targets: (n,) or (n, a): int64 classes, or float32 numbers.
        padded: whether any document is shorter than l.
        target_positions: (n, a), int32, the positions of its only document that an example asks at, none of
            them padding; None where it asks for one answer about the whole.
        answers: what the targets are.
    """

    sequences: Shaped[Tensor, "s l"]
    lengths: Int[Tensor, " s"]
    sequence_ids: Int[Tensor, "n t"]
    targets: Shaped[Tensor, "n ..."]
    padded: bool
    target_positions: Int[Tensor, "n a"] | None = None
    answers: Answers = CLASSES

    @classmethod
    def single(
        cls,
        sequences: Shaped[Tensor, "n l"],
        lengths: Int[Tensor, " n"],
        targets: Shaped[Tensor, "n ..."],
        target_positions: Int[Tensor, "n a"] | None = None,
        answers: Answers = CLASSES,
    ) -> "Split":
        """A split whose examples show one document each, in order."""
        sequence_ids = torch.arange(len(sequences), dtype=torch.int32)[:, None]
        padded = bool((lengths < sequences.shape[1]).any())
        targets = targets.float() if targets.is_floating_point() else targets.long()
        return cls(
            sequences, lengths.int(), sequence_ids, targets, padded, target_positions, answers
        )

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.targets)

    def to(self, device: torch.device | str) -> "Split":
        """The same split with its tensors on `device`."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {n: v.to(device) for n, v in found.items() if isinstance(v, Tensor)}
        return replace(self, **moved)

    def gather(self, examples: Int[Tensor, " b"]) -> Batch:
        """The examples at those indices, gathered on the device without a host synchronisation."""
        sequence_ids = self.sequence_ids[examples]
        tokens = self.sequences[sequence_ids].long()
        mask = None
        if self.padded:
            positions = torch.arange(tokens.shape[-1], device=tokens.device)
            mask = positions < self.lengths[sequence_ids][..., None]
        target_positions = (
            None if self.target_positions is None else self.target_positions[examples].long()
        )
        return Batch(tokens, mask, self.targets[examples], target_positions)

    def tokens(self, example: int) -> list[list[int]]:
        """The tokens of each document that the example shows, without padding."""
        sequence_ids = self.sequence_ids[example].tolist()
        return [self.sequences[row, : int(self.lengths[row])].tolist() for row in sequence_ids]

    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what the split holds: the name of these data.

        Hashed are in turn `lengths`, `sequence_ids`, `target_positions` where there is one, and `targets`, each behind
        its name and shape (`sequence_ids 9x2 `), and then all real tokens, row by row. Every number has 4
        bytes, the lowest first: so neither padding nor the width of an integer tells.
        """
        parts = {
            name: getattr(self, name)
            for name in ("lengths", "sequence_ids", "target_positions", "targets")
        }
        found = hashlib.sha256()
        for name, part in parts.items():
            if part is not None:
                found.update(f"{name} {'x'.join(map(str, part.shape))} ".encode() + _bytes(part))
        positions = torch.arange(self.sequences.shape[1], device=self.sequences.device)
        for sequences, lengths in self.chunks():
            found.update(_bytes(sequences[positions < lengths[:, None]]))
        return found.hexdigest()

    def chunks(self) -> Iterator[tuple[Shaped[Tensor, "c l"], Int[Tensor, " c"]]]:
        """All documents with their lengths, `CHUNK` at a time, in order."""
        return zip(self.sequences.split(CHUNK), self.lengths.split(CHUNK), strict=True)


def _bytes(numbers: Shaped[Tensor, "..."]) -> bytes:
    return numbers.cpu().numpy().astype("<f4" if numbers.is_floating_point() else "<i4").tobytes()


class Task(ABC):
    """A versioned data set with a fixed question.

    A subclass is built as `TheTask(*, option=default, ...)`: the signature is the schema of its
    options, and each option is kept as an attribute of the same name.

    Attributes:
        name: the registered name, without version.
        version: raised when the data or the question change: two versions are never compared.
        classes: number of classes; 1 where a number is asked for.
        vocabulary: number of token values; every token is below it, and what stands at padding.
        max_len: l, the length that documents are padded to.
        sequences: t, documents an example.
        causal: whether a token may hear only those before it: the model is built causal.
        pictures: whether documents are square pictures in raster order, a grey level a token.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    classes: int
    vocabulary: int
    max_len: int
    sequences: int = 1
    causal: bool = False
    pictures: bool = False

    @abstractmethod
    def load(self, split: SplitName) -> Split:
        """The whole split, on the CPU, from the cache (generated there first, where it can be).

        Raises:
            UserError: the data are missing or damaged; the message says how to get them.
        """

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """The classes that each example shows, and that its answers are among, as often as shown.

        Here none, c = 0: what is asked of a whole is not shown in it.
        """
        return torch.empty(len(split), 0, dtype=torch.int64)

    def show(self, split: Split, example: int) -> list[str]:
        """Each document of an example as a person would read it: here, `word` by `word`."""
        return [" ".join(map(self.word, document)) for document in split.tokens(example)]

    def word(self, token: int) -> str:
        """A token as a person would call it."""
        return str(token)

    def label(self, target: int) -> str:
        """A class as a person would call it."""
        return str(target)

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


def make_task(name: str, factory: Callable[..., Task], options: Mapping[str, Value]) -> Task:
    """The task of that name with those options, which says all of itself that a task says.

    Raises:
        UserError: it cannot be built, or leaves something unsaid.
    """

    def make() -> Task:
        task = factory(**options)
        for said in (*Task.__annotations__, "key"):
            getattr(task, said)
        return task

    return built(f"task {name!r}", make)
