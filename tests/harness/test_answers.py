"""The correct test answers of a run, in its record."""

import json

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from harness.records.answers import ClusterValues, CorrectAnswers
from harness.records.record import Record
from harness.runner import by_cluster
from tasks.contract import Split
from tests.reports.conftest import make_record


def test_examples_that_share_a_sequence_are_a_cluster_and_small_clusters_come_first():
    # Sequence 5 is in three examples; each other one is a cluster.
    ids = torch.tensor([[0, 5], [1, 2], [5, 3], [4, 5], [6, 7]]).int()
    tokens, lengths = torch.zeros(8, 1).byte(), torch.ones(8).int()
    split = Split(tokens, lengths, ids, torch.zeros(5).long(), padded=False)
    packed = by_cluster(torch.tensor([True, False, False, True, True]), split)
    assert packed.clusters == ((1, 2), (3, 1)) and packed.cluster_sums().tolist() == [0, 1, 2]


def test_every_answer_survives_packing_and_json():
    rng = np.random.default_rng(0)
    correct, sizes = rng.random(1003) < 0.3, [1] * 500 + [3] * 101 + [200]
    packed = CorrectAnswers.pack(correct.tolist(), sizes)
    again = CorrectAnswers.model_validate_json(packed.model_dump_json())
    expected = [part.sum() for part in np.split(correct, np.cumsum(sizes)[:-1])]
    assert again.cluster_sums().tolist() == expected
    assert (again.count, again.mean) == (1003, correct.mean())
    assert again.cluster_sizes().tolist() == sizes and again == packed
    assert CorrectAnswers.pack([True] * 300, [300]).cluster_sums().tolist() == [300]
    values = ClusterValues(sizes=(2, 3), sums=(1.0, 4.0))
    assert (values.count, values.mean) == (5, 1.0)
    assert values.cluster_sizes().tolist() == [2, 3] and values.cluster_sums().tolist() == [1, 4]
    with pytest.raises(ValidationError, match="one number for each cluster"):
        ClusterValues(sizes=(2, 3), sums=(1.0,))


@pytest.mark.parametrize(("change", "message"), [
    ({"bits": "pA"}, "padding"), ({"bits": "pAA="}, "do not hold"),
    ({"bits": "pQ=="}, "are not 0"), ({"clusters": []}, "at least 1"),
    ({"clusters": [[3, 1]]}, "are not 0"), ({"clusters": [[0, 6]]}, "greater than or equal to 1"),
    ({"clusters": [[2**62, 2**62]]}, "more than"), ({"bits": "tA=="}, "accuracy 66"),
    ({"bits": "eEg=", "clusters": [[1, 13]]}, "accuracy 46"),
])  # fmt: skip
def test_answers_that_do_not_agree_are_rejected(change, message):
    record = json.loads(make_record(accuracy=0.5, examples=2).model_dump_json())
    record["final"]["sample"] = {"kind": "bits", "bits": "pA==", "clusters": [[3, 2]]} | change
    with pytest.raises(ValidationError, match=message):
        Record.model_validate(record)
