"""Features of any sequences of tokens: counts, n-grams, the first and the last tokens.

Axis letters as in `tasks.contract`, and `f` features, `k` positions.
"""

from functools import partial

import numpy as np
import torch
from jaxtyping import Float64, Int32
from scipy.sparse import csr_array, vstack

from tasks.baselines.fitting import Features, best_on_dev, linear, trees
from tasks.contract import Score, Split, Splits

# Lengths of n-grams, one is chosen on dev; n-grams of length 1 are the bag of tokens.
ORDERS = (2, 3, 4)

BITS = 20  # Bits of the hash of an n-gram, where more n-grams are possible than it has values

# Sequences of train times tokens of the vocabulary up to which tokens are counted: 1 GiB.
BAG_SIZE = 1 << 27

# Tokens of train times classes up to which n-grams are fitted: minutes beyond it.
NGRAM_WORK = 100_000_000

# Numbers of tokens at the beginning or end; one is chosen on dev.
POSITIONS = (1, 2, 4, 8, 16, 32, 64)

ENDS = 8  # Tokens at the beginning and as many at the end, read together


def bag_of_tokens(split: Split, vocabulary: int) -> Float64[np.ndarray, "n f"]:
    # Frequencies of tokens, as shares of their sequence, times the square root of `l`.
    # The shares alone are so small that a penalty would suppress the weights that they need.
    shares = []
    for sequences, lengths in split.chunks():
        real = torch.arange(sequences.shape[1]) < lengths[:, None]
        counts = torch.zeros(len(sequences), vocabulary, dtype=torch.float64)
        counts.scatter_add_(1, sequences.long(), real.double())
        shares.append(counts / lengths.clamp_min(1)[:, None])
    scale = split.sequences.shape[1] ** 0.5
    return (torch.cat(shares)[split.sequence_ids].flatten(1) * scale).numpy()


def ngrams(split: Split, vocabulary: int, order: int) -> csr_array:
    # log(1 + count), hashed, in rows of Euclidean length 1.
    size = min(vocabulary**order, 1 << BITS)
    chunks = []
    for sequences, lengths in split.chunks():
        tokens = sequences.numpy().astype(np.uint64)
        width = max(tokens.shape[1] - order + 1, 0)
        codes = np.zeros((len(tokens), width), np.uint64)
        for offset in range(order):
            codes = codes * np.uint64(vocabulary) + tokens[:, offset : offset + width]
        if vocabulary**order > size:
            # 2^64 over the golden ratio: the high bits are a hash (Knuth, vol. 3, 6.4).
            codes = (codes * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - BITS)
        real = np.arange(width) < (lengths.numpy() - order + 1)[:, None]
        starts = np.concatenate([[0], real.sum(1).cumsum()])
        columns = codes[real].astype(np.int32)
        ones, shape = np.ones(len(columns), np.float32), (len(tokens), size)
        rows = csr_array((ones, columns, starts), shape=shape)
        rows.sum_duplicates()
        chunks.append(rows)
    counts = csr_array(vstack(chunks, format="csr"))
    counts.data = np.log1p(counts.data)
    counts.data /= np.repeat(np.sqrt(counts.multiply(counts).sum(1)), np.diff(counts.indptr))
    return counts[split.sequence_ids[:, 0].numpy()]


def one_hot(split: Split, vocabulary: int, count: int) -> csr_array:
    # Padding counts as token 0.
    tokens = first_tokens(split, count).astype(np.int64)
    examples, width = tokens.shape
    columns = (tokens + np.arange(width) * vocabulary).flatten()
    rows = np.arange(0, examples * width + 1, width)
    shape = (examples, width * vocabulary)
    return csr_array((np.ones(examples * width), columns, rows), shape=shape)


def first_tokens(split: Split, count: int) -> Int32[np.ndarray, "n k"]:
    # Padding counts as token 0.
    first = split.sequences[:, :count].int()
    padding = torch.arange(first.shape[1]) >= split.lengths[:, None]
    return first.masked_fill(padding, 0)[split.sequence_ids].flatten(1).numpy()


def last_tokens(split: Split, count: int) -> Int32[np.ndarray, "n k"]:
    # 0 before the first token.
    count = min(count, split.sequences.shape[1])
    positions = split.lengths.long()[:, None] - count + torch.arange(count)
    last = split.sequences.gather(1, positions.clamp_min(0)).int()
    return last.masked_fill(positions < 0, 0)[split.sequence_ids].flatten(1).numpy()


def end_tokens(split: Split, count: int) -> Int32[np.ndarray, "n k"]:
    return np.concatenate([first_tokens(split, count), last_tokens(split, count)], axis=1)


def ngram_accuracies(splits: Splits, vocabulary: int, classes: int) -> dict[str, float]:
    train = splits["train"]
    work = int(train.lengths.sum()) * classes
    if train.sequence_ids.shape[1] > 1 or work > NGRAM_WORK:
        return {}
    fit = partial(fit_ngrams, vocabulary=vocabulary)
    return best_on_dev({f"{order}-grams": partial(fit, order=order) for order in ORDERS}, splits)


def fit_ngrams(splits: Splits, vocabulary: int, order: int) -> Score:
    features = partial(ngrams, vocabulary=vocabulary, order=order)
    return linear(features, splits, (1e-5, 1e-6))  # rows have length 1: weights are large


def end_accuracy(end: str, splits: Splits) -> dict[str, float]:
    features = first_tokens if end == "first" else last_tokens
    longest = splits["train"].sequences.shape[1]
    candidates = {
        end_name(end, count): partial(trees, partial(features, count=count))
        for count in POSITIONS
        if count <= longest
    }
    return best_on_dev(candidates, splits)


def end_name(end: str, count: int) -> str:
    return f"{end} {count} token{'s' * (count > 1)}"


def same_in_train(features: Features, splits: Splits) -> float:
    # The most frequent class of train, the lowest in case of a tie, answers without equal features.
    targets = {name: splits[name].targets.numpy() for name in ("train", "test")}
    rows = np.concatenate([features(splits["train"]), features(splits["test"])])
    kinds, kind = np.unique(rows, axis=0, return_inverse=True)
    train, test = np.split(kind.ravel(), [len(targets["train"])])
    counts = np.zeros((len(kinds), targets["train"].max() + 1), np.int64)
    np.add.at(counts, (train, targets["train"]), 1)
    counts[counts.sum(1) == 0] = counts.sum(0)
    return float((counts.argmax(1)[test] == targets["test"]).mean())


def sequences(split: Split) -> np.ndarray:
    return split.sequences[split.sequence_ids[:, 0]].numpy()
