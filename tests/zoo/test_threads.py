"""Loops shared by threads: each part once, on several threads, with errors of any of them."""

import threading

import pytest

from zoo.kernels import threads


@pytest.fixture(params=["openmp", "pool"])
def team(request, monkeypatch):
    if request.param == "pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)
    elif threads._openmp() is None:
        pytest.skip("PyTorch is not built on GNU OpenMP here")


@pytest.mark.parametrize(
    ("count", "blocks"), [(1, 7), (2, 0), (2, 1), (2, 7), (3, 64), (5, 7), (5, 64)]
)
def test_every_block_is_processed_once(team, set_threads, count, blocks):
    set_threads(count)
    done, ranges = [], []

    def loop(factor: int, first: int, last: int) -> None:
        ranges.append((first, last))
        done.extend(factor * block for block in range(first, last))

    threads.share(loop, blocks, 4, 10)
    assert sorted(done) == [10 * block for block in range(blocks)]
    assert len(ranges) == max(1, min(count, blocks // 4))


def test_parts_are_processed_at_the_same_time(team, set_threads):
    set_threads(2)
    both = threading.Barrier(2, timeout=300)
    idents = []

    def loop(first: int, last: int) -> None:
        # Passed only if two threads wait here at once.
        both.wait()
        idents.append(threading.get_ident())

    threads.share(loop, 8, 1)
    assert len(set(idents)) == 2


@pytest.mark.parametrize("bad", [0, 4])
def test_an_error_of_any_thread_is_raised(team, set_threads, bad):
    set_threads(2)
    with pytest.raises(ZeroDivisionError):
        threads.share(lambda first, last: 1 / (first - bad), 8, 1)


@pytest.mark.parametrize("error", [OSError, TypeError, AttributeError])
def test_the_pool_is_used_without_gnu_openmp_and_a_smaller_team_processes_every_part(
    error, set_threads, monkeypatch
):
    def refuse(_):
        raise error

    monkeypatch.setattr(threads.ctypes, "CDLL", refuse)
    assert threads._openmp.__wrapped__() is None
    monkeypatch.setattr(threads, "_openmp", lambda: lambda body, data, *_: body(data))
    set_threads(4)
    ranges = []
    threads.share(lambda first, last: ranges.append((first, last)), 8, 1)
    assert ranges == [(0, 2), (2, 4), (4, 6), (6, 8)]
