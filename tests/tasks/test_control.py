"""Task control: windows, splits, what a file must fit, and rollouts."""

import numpy as np
import pytest
import torch

from tasks import create
from tasks.baselines import compute
from tasks.contract import SPLITS
from tasks.control.control import PUBLISHED, TEST_SEED, Reference
from tasks.control.environment import Environment
from tasks.control.windows import Scale, episodes, returns_of, returns_to_go, windows
from tasks.data.trajectories import Trajectories, read
from tests.conftest import one_line
from tests.tasks.conftest import require_conformance
from tests.tasks.test_trajectories import arrays
from tests.trajectories import record_short, save

pytest.importorskip("mujoco")
pytest.importorskip("h5py")

LENGTHS = (25, 7, 40, 3, 30, 12)


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return record_short(tmp_path_factory.mktemp("control") / "a.hdf5", LENGTHS)


def test_every_step_begins_a_window_of_its_own_trajectory(path):
    task = create("control", path=path, context=5, dev=0.34, scale=10.0)
    data, starts = read(path), []
    for name in ("train", "dev"):
        split = task.load(name)
        batch = split.gather(torch.arange(len(split)))
        masks, tokens = batch.mask[:, 0].sum(1).tolist(), batch.tokens[:, 0]
        windows = zip(masks, tokens, batch.targets, strict=True)
        for count, window, targets in windows:
            steps = window[:count]
            (at,) = np.flatnonzero(np.abs(data.actions[:, 0] / 3 - float(steps[0, -1])) < 1e-7)
            starts.append(at)
            end = data.ends[data.ends > at][0]
            assert count == min(5, end - at)
            assert torch.equal(targets[:count], steps[:, -1:]) and targets[count:].isnan().all()
            to_go = [(end - at - k) / 10 for k in range(count)]
            assert steps[:, 1].tolist() == pytest.approx(to_go)
            assert steps[1:, 0].tolist() == [steps[0, 0] + k for k in range(1, count)]
    assert sorted(starts) == list(range(len(data.rewards)))


def test_returns_to_go_are_the_rewards_that_follow_and_steps_are_counted_from_0():
    states = np.array([[step**2, 7] for step in range(5)], np.float32)  # the second never changes
    rewards, ends = np.array([1.0, 2, 4, 8, 16]), np.array([3, 5])
    data = Trajectories(states, np.zeros((5, 1), np.float32), rewards, ends, ends == 3, {})
    assert returns_to_go(data).tolist() == [7, 6, 4, 24, 16]
    chosen, bound = np.ones(2, bool), np.ones(1, np.float32)
    split = windows(data, chosen, Scale.of(data, chosen, 1.0, bound), 2)
    assert split.sequences[:, 0, 0].tolist() == [0, 1, 2, 0, 1]
    assert split.sequences.isfinite().all() and not split.sequences[:, 0, 3].any()
    assert split.clusters.tolist() == [0, 0, 0, 1, 1]


class Counting(Environment):
    def __init__(self, length: int, *, truncated: bool) -> None:
        self.length, self.truncated, self.taken = length, truncated, []

    def step(self, action) -> tuple[np.ndarray, float, bool, bool]:
        self.taken.append(float(action[0]))
        count = len(self.taken)
        ended = count >= self.length
        state = np.array([count], np.float32)
        return state, float(count), ended and not self.truncated, ended and self.truncated


def test_each_episode_has_its_own_rewards_up_to_its_own_end():
    lengths = {2: True, 4: False, 9: True}
    environments = [Counting(length, truncated=truncated) for length, truncated in lengths.items()]
    scale = Scale(np.zeros(1), np.ones(1), 10.0, np.ones(1, np.float32))
    begin, seen = episodes(np.zeros((3, 1), np.float32), 100.0, scale, 3), []

    def act(windows, count):
        seen.append(windows[:, :count].clone())
        return torch.full((3, 1), 2.0)

    assert returns_of(act, begin, environments, scale, 6) == [3.0, 10.0, 21.0]
    assert [environment.taken for environment in environments] == [[1.0] * n for n in (2, 4, 6)]
    last = seen[-1][2]
    assert last[:, 0].tolist() == last[:, 2].tolist() == [3, 4, 5]
    assert last[:, 1].tolist() == pytest.approx([9.4, 9.0, 8.5])
    assert last[:, 3].tolist() == [1, 1, 0]


def test_the_seed_holds_out_whole_trajectories_and_states_are_scaled_by_train(path):
    sizes = []
    for seed in range(3):
        task = create("control", path=path, context=1, dev=0.34, seed=seed)
        train, dev = task.load("train"), task.load("dev")
        assert len(train) + len(dev) == sum(LENGTHS)
        assert len(dev.clusters.unique()) == 2 and len(train.clusters.unique()) == 4
        states = train.sequences[:, 0, 2:6].double()
        assert states.mean(0).abs().max() < 1e-3 and (states.std(0) - 1).abs().max() < 0.02
        sizes.append(len(dev))
    assert len({*sizes}) > 1
    least = create("control", path=path, dev=0.01).load("dev")
    assert len(least.clusters.unique()) == 1


def test_test_is_the_first_step_of_each_episode_with_the_target_return(path):
    task = create("control", path=path, context=3, episodes=2, target=50.0, scale=10.0)
    test = task.load("test")
    assert test.targets.isnan().all() and test.lengths.tolist() == [1, 1]
    assert test.sequences[:, 0, 1].tolist() == pytest.approx([5.5, 5.5])  # 5 + 50 % of 100
    assert not torch.equal(test.sequences[0], test.sequences[1])
    assert test.digest() == task.load("test").digest()
    other = create("control", path=path, context=3, episodes=2).load("test")
    assert test.digest() != other.digest()


def test_a_policy_gets_the_states_of_the_environment_from_its_seeds(path):
    task = create("control", path=path, context=3, episodes=2, steps=60)
    test, calls = task.load("test"), []

    def push(windows, count):
        calls.append(windows.clone())
        return torch.full((2, 1), 0.25)

    returns = task.returns(push, test)
    assert returns == task.returns(push, test) and 1 < max(returns) < 60
    assert len(calls) == 2 * (int(max(returns)) + 1)  # the last step is not rewarded
    assert torch.equal(calls[0][:, :1], test.sequences[:, :1])
    environment = Environment("InvertedPendulum-v5")
    for i, window in enumerate(calls[1]):
        environment.reset(TEST_SEED + i)
        state, *_ = environment.step(np.array([0.25]))
        expected = task._scale(environment).states(state)
        assert window[1, 2:6].tolist() == pytest.approx(expected.tolist())


def test_baselines_are_uniform_actions_and_the_trajectories_of_the_file(path):
    require_conformance("control", path=path, episodes=3)
    task = create("control", path=path, episodes=3)
    splits = {name: task.load(name) for name in SPLITS}
    returns = compute(task, splits)
    assert returns["trajectories of the file"] == pytest.approx(np.mean(LENGTHS) - 5)
    assert -5 < returns["random policy"] < 10 and returns == compute(task, splits)
    assert [*returns] == ["random policy", "trajectories of the file"]


def test_reference_returns_are_those_given_then_those_of_the_file_then_those_of_d4rl(tmp_path):
    path = record_short(tmp_path / "a.hdf5")
    assert create("control", path=path).references() == (5.0, 105.0)
    assert create("control", path=path, reference="-1,9").references() == (-1.0, 9.0)
    hopper = save(tmp_path / "h.hdf5", arrays(states=11, actions=3))
    assert create("control", path=hopper, env="Hopper-v5").references().expert == 3234.3
    assert create("control", path=hopper, env="Hopper-v4").references() == PUBLISHED["Hopper"]
    assert Reference(-20.0, 80.0).normalised(30.0) == 50.0
    assert Reference(-20.0, 80.0).denormalised(50.0) == 30.0


@pytest.mark.parametrize(("content", "options"), [
    ({}, {}), ({}, {"env": "InvertedPendulum-v5"}),
    ({"states": 11, "actions": 3}, {"env": "HalfCheetah-v5"}),
    ({"states": 11, "actions": 3}, {"env": "Hopper-v5", "dev": 1.0}),
    ({"states": 11, "actions": 3}, {"env": "Hopper-v5", "steps": 2}),
    ({"lengths": (4,)}, {"env": "Hopper-v5"}), ({}, {"env": "a", "reference": "3"}),
    ({}, {"env": "a", "reference": "3,1"}), ({}, {"env": "a", "reference": "1,3", "episodes": 0}),
    ({"largest": 1.5, "states": 11, "actions": 3}, {"env": "Hopper-v5"}),
])  # fmt: skip
def test_what_does_not_fit_is_rejected_in_one_line(tmp_path, content, options):
    path = save(tmp_path / "a.hdf5", arrays(**content))
    with one_line():
        create("control", path=path, **options).load("train")
