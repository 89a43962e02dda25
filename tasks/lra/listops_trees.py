"""Random ListOps trees and their values, compiled by numba.

A tree is written in prefix form, `[MAX 1 2 ]`, as token numbers. The distribution (Nangia
and Bowman, 2018, arXiv 1804.06028; sizes of Tay et al., 2021, arXiv 2011.04006), root at depth 1:

* at depth 10, or if r > 0.25 with r uniform in [0, 1), the node is a digit, uniform in 0..9;
* else it has n children, n uniform in 2..10, and an operator uniform over MIN, MAX, MED, SM.

All draws use `Generator.random`, whose stream NumPy guarantees.
"""

import numpy as np
from jaxtyping import Int64, UInt8
from numba import njit

PAD = 0
FIRST_DIGIT = 1
FIRST_OPERATOR = 11
CLOSE = 15
OPERATORS = ("MIN", "MAX", "MED", "SM")

DEPTH = 10
MIN_CHILDREN, MAX_CHILDREN = 2, 10
BRANCHING = 0.25


# Compiled in each process that generates: an on-disk cache of machine code needs a writable folder
# next to the package, and importing this module would fail without one.
@njit(nogil=True)
def draw_trees(
    rng: np.random.Generator, draws: int, min_len: int, max_len: int,
    tokens: UInt8[np.ndarray, " space"], ends: Int64[np.ndarray, " draws"],
    targets: UInt8[np.ndarray, " draws"],
) -> int:  # fmt: skip
    # `tokens`, with room for draws * max_len, receives the kept trees, concatenated, `ends` the end
    # of each, and `targets` its value.
    count = 0
    end = 0
    for _ in range(draws):
        length, value = draw_tree(rng, max_len, tokens[end:])
        if length > min_len:
            end += length
            ends[count] = end
            targets[count] = value
            count += 1
    return count


@njit(nogil=True)
def draw_tree(
    rng: np.random.Generator, max_len: int, tokens: UInt8[np.ndarray, " space"]
) -> tuple[int, int]:
    # (0, 0) if it is too long.
    starts = np.empty(DEPTH, np.int64)  # position of the operator of each unfinished node
    children = np.empty(DEPTH, np.int64)
    complete = np.empty(DEPTH, np.int64)  # how many of its children are
    values = np.empty((DEPTH, MAX_CHILDREN), np.int64)
    level, length, shortest = 0, 0, 1
    while True:
        if level < DEPTH - 1 and rng.random() <= BRANCHING:
            starts[level] = length
            children[level] = MIN_CHILDREN + int(rng.random() * (MAX_CHILDREN - MIN_CHILDREN + 1))
            complete[level] = 0
            shortest += 1 + children[level]
            if shortest >= max_len:
                return 0, 0
            level += 1
            length += 1
            continue
        value = int(rng.random() * 10)
        tokens[length] = FIRST_DIGIT + value
        length += 1
        while level > 0:
            parent = level - 1
            values[parent, complete[parent]] = value
            complete[parent] += 1
            if complete[parent] < children[parent]:
                break
            operator = int(rng.random() * len(OPERATORS))
            tokens[starts[parent]] = FIRST_OPERATOR + operator
            tokens[length] = CLOSE
            length += 1
            level = parent
            value = apply(operator, values[parent, : complete[parent]])
        if level == 0:
            return length, value


@njit(nogil=True)
def apply(operator: int, values: Int64[np.ndarray, " children"]) -> int:
    # MED is the integer part of the median, the mean of the two middle values; SM the sum modulo
    # 10.
    n = len(values)
    # Insertion sort: for at most ten values it takes a third of a library sort's time.
    for i in range(1, n):
        for j in range(i, 0, -1):
            if values[j - 1] <= values[j]:
                break
            values[j - 1], values[j] = values[j], values[j - 1]
    middle = (values[(n - 1) // 2] + values[n // 2]) // 2
    return (values[0], values[-1], middle, values.sum() % 10)[operator]
