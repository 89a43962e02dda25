"""The contract of a task: three splits, each a few tensors, and the kind of its targets.

Axis letters of this package: `n` examples, `b` examples of a batch, `t` sequences of an example (1,
or 2 where two are compared), `s` stored sequences, `l` tokens of a sequence, `a` target positions
of an example, `c` candidate answers of an example, `f` channels of a signal, `k` sequences of a
chunk.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tasks.answers import CLASSES, Answers
from zoo.registry import Value, checked, options_of, require_at_least, require_memory

SplitName = Literal["train", "dev", "test"]
SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")

Inputs = Literal["sequences", "images", "trajectories"]
Splits: TypeAlias = Mapping[SplitName, "Split"]


class Score(NamedTuple):
    """Means of `Answers.values`: accuracies in [0, 1], or mean cross-entropies in nats."""

    dev: float
    test: float


Baseline: TypeAlias = Callable[[Splits], float | Score]
"""Fits a model without attention to train; gives the mean on test, or those on dev and test."""

Minimum: TypeAlias = int | tuple[int, str]
"""The least value of an option, and the reason, if it needs one."""

NO_ANSWER = -1
"""The target of an entry without a class."""

CHUNK = 4096
"""Sequences that are processed at a time, so that intermediate tensors stay small."""


@dataclass(frozen=True)
class Batch:
    """Some examples, padded to the task's length.

    Attributes:
        tokens: (b, t, l), int64, or (b, t, l, f), float32, where sequences are signals; padded
            positions hold arbitrary tokens. Images are (b, 3, h, w), float32.
        mask: (b, t, l), True for real tokens; None where the split has no padding.
        targets: (b,), one target per example; (b, a) where there are target positions; (b,
            classes), float32, where images are mixed.
        target_positions: (b, a), the positions whose outputs are compared with the targets; None
            where the target belongs to the whole example.
    """

    tokens: Int[Tensor, "b t l"] | Float[Tensor, "b t l f"] | Float[Tensor, "b 3 h w"]
    mask: Bool[Tensor, "b t l"] | None
    targets: Shaped[Tensor, "b ..."]
    target_positions: Int[Tensor, "b a"] | None = None


@dataclass(frozen=True)
class Split:
    """A whole split in a few tensors, small enough to stay on the device.

    Each sequence is stored once; an example refers to its sequences by index.

    Attributes:
        sequences: (s, l), in the smallest integer type that holds the vocabulary; (s, l, f),
            float32, where sequences are signals.
        lengths: (s,), int32, the number of real tokens of each sequence; padding follows them.
        sequence_ids: (n, t), int32, the indices of each example's sequences.
        targets: (n,) or (n, a): int64 classes, or float32 numbers.
        padded: whether any sequence is shorter than l.
        target_positions: (n, a), int32, positions in an example's only sequence, none of them
            padding; None where an example has one target. Where every position has a target, a view
            of one row, `torch.arange(l).expand(n, l)`, takes no memory.
        answers: the kind of the targets.
        clusters: (n,), int32, which examples depend on each other, such as the windows of one
            article; None where those do that share a sequence.
    """

    sequences: Shaped[Tensor, "s l *f"]
    lengths: Int[Tensor, " s"]
    sequence_ids: Int[Tensor, "n t"]
    targets: Shaped[Tensor, "n ..."]
    padded: bool
    target_positions: Int[Tensor, "n a"] | None = None
    answers: Answers = CLASSES
    clusters: Int[Tensor, " n"] | None = None

    @classmethod
    def single(
        cls, sequences: Shaped[Tensor, "n l *f"], lengths: Int[Tensor, " n"] | None,
        targets: Shaped[Tensor, "n ..."], target_positions: Int[Tensor, "n a"] | None = None,
        answers: Answers = CLASSES, clusters: Int[Tensor, " n"] | None = None,
    ) -> "Split":  # fmt: skip
        """A split whose example i has one sequence, the i-th; without `lengths`, none is padded."""
        count, length = sequences.shape[:2]
        if lengths is None:
            lengths = torch.full((count,), length, dtype=torch.int32)
        return cls(
            sequences=sequences, lengths=lengths.int(), padded=bool((lengths < length).any()),
            sequence_ids=torch.arange(count, dtype=torch.int32)[:, None],
            targets=targets.float() if targets.is_floating_point() else targets.long(),
            target_positions=target_positions, answers=answers, clusters=clusters,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.targets)

    def to(self, device: torch.device | str) -> "Split":
        """The same split with its tensors on `device`."""
        tensors = {n: v.to(device) for n, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **tensors)

    def example_lengths(self) -> Int[Tensor, " n"]:
        """The number of real tokens of each example, in the longest of its sequences."""
        return self.lengths[self.sequence_ids].amax(1)

    def gather(self, examples: Int[Tensor, " b"], length: int | None = None) -> Batch:
        """The examples at those indices, gathered on the device without host synchronisation.

        `length` is l of the batch, at least the longest example's; None for the task's.
        """
        sequence_ids = self.sequence_ids[examples]
        tokens = self.sequences[:, :length][sequence_ids]
        tokens = tokens if tokens.is_floating_point() else tokens.long()
        mask = target_positions = None
        if self.padded:
            positions = torch.arange(tokens.shape[2], device=tokens.device)
            mask = positions < self.lengths[sequence_ids][..., None]
        if self.target_positions is not None:
            target_positions = self.target_positions[examples].long()
        return Batch(tokens, mask, self.targets[examples], target_positions)

    def tokens(self, example: int) -> list[list[int]]:
        """The tokens of each sequence of the example, without padding."""
        ids = self.sequence_ids[example].tolist()
        return [self.sequences[i, : int(self.lengths[i])].tolist() for i in ids]

    def digest(self) -> str:
        """SHA-256 of the split's content, in hexadecimal; it identifies the data of a run.

        The hash has `lengths`, `sequence_ids`, `target_positions` (if any) and `targets`, each
        behind its name and shape (`sequence_ids 9x2 `). Then it has all real tokens, sequence by
        sequence; before signals, `channels` and their number. Every number
        takes 4 bytes, little-endian, so neither padding nor the width of an integer type changes
        the digest.
        """
        sha256 = hashlib.sha256()
        for name in ("lengths", "sequence_ids", "target_positions", "targets"):
            if (part := getattr(self, name)) is not None:
                shape = "x".join(map(str, part.shape))
                sha256.update(f"{name} {shape} ".encode() + _bytes(part))
        if self.sequences.ndim == 3:
            sha256.update(f"channels {self.sequences.shape[2]} ".encode())
        positions = torch.arange(self.sequences.shape[1], device=self.sequences.device)
        for sequences, lengths in self.chunks():
            sha256.update(_bytes(sequences[positions < lengths[:, None]]))
        return sha256.hexdigest()

    def chunks(
        self, size: int = CHUNK
    ) -> Iterator[tuple[Shaped[Tensor, "k l *f"], Int[Tensor, " k"]]]:
        """All sequences with their lengths, `size` at a time, in order."""
        return zip(self.sequences.split(size), self.lengths.split(size), strict=True)


def _bytes(numbers: Shaped[Tensor, "..."]) -> bytes:
    return numbers.cpu().numpy().astype("<f4" if numbers.is_floating_point() else "<i4").tobytes()


class Task(ABC):
    """A versioned data set and what is predicted from it.

    A subclass is a dataclass, `@dataclass(frozen=True, kw_only=True)`, whose fields are its
    options. The other attributes are class attributes; those that follow from the options are set
    in `__post_init__`. The entries of this docstring and of a subclass's are the help of options.

    Attributes:
        name: the registered name, without version.
        version: incremented when the data or the targets change; results of two versions are never
            compared.
        classes: number of classes; 1 where the target is a number.
        vocabulary: vocabulary size; every token is below it, also at padded positions. 0 where
            sequences are signals.
        channels: f, the channels of a signal; 0 where sequences are tokens.
        max_len: l, the length that sequences are padded to.
        sequences: t, sequences per example.
        causal: whether a token may attend to earlier tokens only: the model is built causal.
        images: whether sequences are square grey images in raster order, one token per pixel.
        inputs: what an example is; it determines the model. `sequences` of tokens or signals,
            colour `images`, or `trajectories` of states, actions and returns.
        packages: optional packages whose versions are part of the results.
        labels: name of each class; empty where it is the number of the class.
        caveat: what a score does not show: what the best rule reaches that does not do what the
            task asks for. `harness list` shows it.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    classes: int
    vocabulary: int
    max_len: int
    channels: int = 0
    sequences: int = 1
    causal: bool = False
    images: bool = False
    inputs: Inputs = "sequences"
    packages: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    caveat: str = ""

    def __init_subclass__(cls) -> None:
        """Let `load` reject a split that is none of `SPLITS`."""
        super().__init_subclass__()
        if "load" in vars(cls):
            cls.load = checked(cls.load, like=Task.load)

    @abstractmethod
    def load(self, split: SplitName) -> Split:
        """The whole split, on the CPU, from the cache (generated first where that is possible)."""

    def length(self, split: SplitName) -> int:
        """The length that sequences of a split are padded to, at most `max_len`: the default."""
        return self.max_len

    def groups(self, split: Split) -> Mapping[str, Bool[Tensor, " n"]]:
        """The examples of a split whose scores are recorded apart, by name: by default none."""
        return {}

    def probes(self) -> Mapping[str, Split]:
        """Further splits on which a trained model is tested once, by name: by default none."""
        return {}

    def candidates(self, split: Split) -> Int[Tensor, "n c"]:
        """The answers that each example contains, by their place, correct ones included.

        A column is the same place in every example; `NO_ANSWER` where that holds none. By default
        there are no places, c = 0.
        """
        return torch.empty(len(split), 0, dtype=torch.int64)

    def shallow_baselines(self) -> Mapping[str, Baseline]:
        """Models made for this task that do not do what it asks for, by name.

        They are fitted in addition to what every task has, see `tasks.baselines`. Where an example
        has one target and sequences are tokens, only if train is not small. By default none.
        """
        return {}

    def show(self, split: Split, example: int) -> list[str]:
        """Each sequence of an example as text: by default the words of its tokens."""
        return [" ".join(map(self.word, sequence)) for sequence in split.tokens(example)]

    def word(self, token: int) -> str:
        """A token as text."""
        return str(token)

    def class_name(self, target: int) -> str:
        """A class as text."""
        return self.labels[target] if self.labels else str(target)

    @classmethod
    def option_names(cls) -> list[str]:
        """The name of every option; the sizes of the splits and the seed come last."""
        last = (*SPLITS, "seed")
        return sorted(options_of(cls), key=lambda name: last.index(name) if name in last else -1)

    @property
    def options(self) -> dict[str, Value]:
        """The value of every option, in the order of `option_names`."""
        return {name: getattr(self, name) for name in self.option_names()}

    @property
    def key(self) -> str:
        """`name@version`, followed by the options that differ from their defaults."""
        schema = options_of(type(self))
        changed = ",".join(f"{n}={v}" for n, v in self.options.items() if v != schema[n].default)
        return f"{self.name}@{self.version}" + (f"[{changed}]" if changed else "")

    def _derive(self, **attributes: int) -> None:
        vars(self).update(attributes)

    def _require(self, **minima: Minimum) -> None:
        for option, bound in {**minima, "train": 1, "dev": 1, "test": 1, "seed": 0}.items():
            minimum, reason = bound if isinstance(bound, tuple) else (bound, "")
            require_at_least(minimum, self.name, reason, **{option: getattr(self, option)})
        examples = sum(getattr(self, name) for name in SPLITS)
        # A token takes a byte at least, padding included.
        require_memory(
            examples * self.sequences * self.max_len,
            f"{self.name}, {examples:.3g} examples of up to {self.max_len:.3g} tokens,",
            "lower one of them",
        )
