import pytest

from reports.labels import Box, Disc, Scene, around, choose

FRAME = Box(0, 0, 400, 300)


def test_many_labels_find_room_of_their_own():
    discs = [Disc(60 + 55 * (i % 6), 60 + 90 * (i // 6), 12) for i in range(18)]
    taken = []
    for disc in discs:
        taken.append(choose(around(disc, 48, 12, 3), Scene(FRAME, discs, taken)))
    for i, box in enumerate(taken):
        others = taken[:i] + taken[i + 1 :]
        assert Scene(FRAME, discs, others).conflict(box) == 0


def test_a_label_keeps_within_the_frame():
    disc = Disc(395, 295, 5)
    assert choose(around(disc, 60, 12, 3), Scene(FRAME, [disc], [])).outside(FRAME) == 0


def test_without_any_room_the_least_conflict_wins():
    blocked = Scene(FRAME, [], [Box(0, 0, 400, 300)])
    worse, better = Box(10, 10, 50, 50), Box(10, 10, 20, 20)
    assert choose([worse, better], blocked) == better


def test_choosing_from_nothing_is_refused():
    with pytest.raises(ValueError, match="no candidates"):
        choose([], Scene(FRAME, [], []))


@pytest.mark.parametrize(
    ("box", "apart"), [(Box(10, -1, 20, 1), True), (Box(9, -1, 20, 1), False)], ids=str
)
def test_a_disc_and_a_box_conflict_where_they_meet(box, apart):
    assert (Disc(0, 0, 10).overlap(box) == 0) is apart
