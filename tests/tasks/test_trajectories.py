"""Files of trajectories, and the environments."""

import sys

import numpy as np
import pytest

from tasks.control.environment import Environment
from tasks.data.trajectories import ENDS, read
from tests.conftest import one_line
from tests.trajectories import PENDULUM, save

h5py = pytest.importorskip("h5py")


def arrays(lengths=(3, 2), states=4, actions=1, largest=1.0) -> dict[str, np.ndarray]:
    rng, count = np.random.default_rng(0), sum(lengths)
    ends = np.cumsum(lengths) - 1
    terminals, timeouts = np.zeros(count, bool), np.zeros(count, bool)
    terminals[ends[-1]] = timeouts[ends[:-1]] = True
    observations, taken = (rng.random((count, n), dtype=np.float32) for n in (states, actions))
    return {
        "observations": observations, "actions": taken * largest / taken.max(),
        "rewards": rng.random(count), "terminals": terminals, "timeouts": timeouts,
    }  # fmt: skip


def as_minari(content, lengths=(3, 2)) -> dict[str, np.ndarray]:
    groups, names = {}, dict(zip(ENDS["d4rl"], ENDS["minari"], strict=True))
    for name, values in content.items():
        for i, part in enumerate(np.split(values, np.cumsum(lengths)[:-1])):
            whole = np.concatenate([part, part[-1:]]) if name == "observations" else part
            groups[f"episode_{i}/{names.get(name, name)}"] = whole
    return groups


def test_both_forms_have_the_same_trajectories_in_order_of_their_numbers(tmp_path):
    lengths = (1,) * 10 + (3, 2)  # episode_10 follows episode_9, not episode_1
    content = arrays(lengths)
    plain = read(save(tmp_path / "d4rl.hdf5", content))
    minari = read(save(tmp_path / "minari.hdf5", as_minari(content, lengths)))
    assert all(map(np.array_equal, plain[:-1], minari[:-1]))
    assert plain.lengths.tolist() == list(lengths)
    assert plain.terminal.tolist() == [False] * 11 + [True]
    assert plain.returns[-1] == pytest.approx(content["rewards"][-2:].sum())


@pytest.mark.parametrize("lengths", [[3], [3, 2]])
def test_a_limit_may_end_trajectories_and_later_steps_are_left_out(tmp_path, lengths):
    content = arrays()
    content["timeouts"] |= content["terminals"] & (len(lengths) > 1)
    content["terminals"][:] = False
    assert read(save(tmp_path / "a.hdf5", content)).lengths.tolist() == lengths


def replaced(name, change):
    return lambda content: content.update({name: change(content[name])})


DAMAGED = [
    lambda content: content.pop("timeouts"), replaced("actions", lambda a: a[:-1]),
    replaced("observations", lambda a: a[:, :, None]), replaced("rewards", lambda a: a * np.nan),
    replaced("rewards", lambda a: a.astype("S8")), replaced("rewards", lambda a: a[:, None]),
    replaced("actions", lambda a: a[:, 0]), replaced("actions", lambda a: a[:, :0]),
    replaced("observations", lambda a: a.astype("f8") * 1e300),
    replaced("timeouts", lambda a: a * 255), replaced("terminals", lambda a: a - 1.0),
    lambda content: content.update(next_observations=np.zeros((5, 3))),
    lambda content: content.update(dict.fromkeys(ENDS["d4rl"], np.zeros(5))),
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_does_not_fit_is_rejected_in_one_line(tmp_path, damage):
    content = arrays()
    damage(content)
    path = save(tmp_path / "a.hdf5", content)
    with one_line(path):
        read(path)


def continued(lengths, marked, shift=0) -> dict[str, np.ndarray]:
    content = arrays(lengths)
    following = np.concatenate([content["observations"][1:], np.ones((1, 4), np.float32)])
    ends = np.cumsum(lengths) - 1
    following[ends] += 1  # the last state of an episode is not the first of the next one
    content["next_observations"] = following
    content["terminals"][:] = content["timeouts"][:] = False
    content["timeouts"][np.cumsum(marked) - 1 + shift] = True
    return content


def test_marks_of_ends_that_contradict_the_next_observations_are_rejected(tmp_path):
    lengths = (40, 25, 35)
    for halved in ("observations", "next_observations"):
        content = continued(lengths, lengths)
        content[halved] = content[halved].astype(np.float16)
        assert read(save(tmp_path / "a.hdf5", content)).lengths.tolist() == [*lengths]
    # Two episodes would be one, and a mark is one step early.
    for marked, shift in (((65, 35), 0), (lengths, -1), ((100,), 0)):
        with one_line("next_observations of step 39"):
            read(save(tmp_path / "b.hdf5", continued(lengths, marked, shift)))


def test_damaged_missing_and_foreign_files_are_rejected(tmp_path):
    save(tmp_path / "a.hdf5", arrays())
    (tmp_path / "cut.hdf5").write_bytes((tmp_path / "a.hdf5").read_bytes()[:1500])
    (tmp_path / "text.hdf5").write_text("no HDF5")
    for name in ("cut.hdf5", "text.hdf5", "none.hdf5", ""):
        with one_line(tmp_path / name):
            read(str(tmp_path / name))
    minari = as_minari(arrays())
    minari["episode_0/observations"] = minari["episode_0/observations"][:-1]
    with one_line("episode_0", "observations"):
        read(save(tmp_path / "b.hdf5", minari))


def link(file, other):
    file["unused/further"] = h5py.ExternalLink(other, "/")
    file["rewards"] = h5py.SoftLink("/unused/further/rewards")


def storage(file, other):
    file.create_dataset("rewards", (5,), "f8", external=[(other, 0, 8 * 5)])


def virtual_array(file, other):
    layout = h5py.VirtualLayout((5,), "f8")
    layout[:] = h5py.VirtualSource(other, "rewards", (5,))
    file.create_virtual_dataset("rewards", layout)


def huge(file, other):  # beyond the memory of the machine
    file.create_dataset("rewards", (2**50,), "f8", chunks=(2**20,))


@pytest.mark.parametrize(("refer", "word"), [
    (link, "link"), (storage, "other files"), (virtual_array, "other files"), (huge, "memory"),
])  # fmt: skip
def test_numbers_of_another_file_or_beyond_the_memory_are_never_read(tmp_path, refer, word):
    other = save(tmp_path / "other.hdf5", arrays())
    path = save(tmp_path / "a.hdf5", {n: v for n, v in arrays().items() if n != "rewards"})
    with h5py.File(path, "a") as file:
        refer(file, other)
        assert len(file["rewards"]) >= 5  # h5py alone would read it
    with one_line(path, word):
        read(path)


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    path = save(tmp_path / "a.hdf5", arrays())
    for name, use in (("h5py", lambda: read(path)), ("gymnasium", lambda: Environment(PENDULUM))):
        monkeypatch.setitem(sys.modules, name, None)
        with one_line(name, ".[control]"):
            use()


@pytest.mark.parametrize("name", ["Nothing-v1", "CartPole-v1"])
def test_an_unfit_environment_is_rejected(name):
    pytest.importorskip("mujoco")
    with one_line(name):
        Environment(name)
