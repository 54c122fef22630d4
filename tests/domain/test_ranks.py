"""Several ranks on one clock: what was put into made traces comes out, whatever their clocks say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.domain.observed import Collective, RankSplit, RankTrace, together

US = 1e-6
SPLIT = RankSplit(window_s=1.0, compute_s=0.5, communication_s=0.5, exposed_communication_s=0.5)
MEETINGS = st.lists(st.tuples(st.lists(st.integers(0, 200), min_size=3, max_size=3), st.integers(1, 50)), min_size=1, max_size=12)


def _traces(meetings, clocks, *, numbered=True, cut=(0, 0, 0), group="dp", operation="all-reduce"):
    """A trace for each rank: when each comes, relative to the meeting before, and how long the transfer lasts; microseconds."""
    rows, now = [[] for _ in clocks], 0.0
    for sequence, (late, transfer) in enumerate(meetings):
        end = now + max(late) + transfer
        for rank, clock in enumerate(clocks):
            rows[rank].append(Collective(
                operation=operation, start_s=(now + late[rank] + clock) * US, end_s=(end + clock) * US, exposed_s=0.0, group=group,
                sequence=sequence if numbered else None))
        now = end
    return [RankTrace(file=f"{rank}.json", format="chrome_trace", split=SPLIT, rank=rank, collectives=tuple(each[cut[rank]:]))
            for rank, each in enumerate(rows)]


@examples(60)
@given(MEETINGS, st.tuples(*[st.integers(-10**6, 10**6)] * 3), st.booleans())
def test_waiting_and_transfer_come_out_whatever_clocks_say(meetings, clocks, numbered):
    found = together(_traces(meetings, clocks, numbered=numbered))
    assert found.matched == len(meetings)
    assert found.unmatched == 0
    for rank in range(3):
        assert found.offsets_s[rank] == pytest.approx((clocks[0] - clocks[rank]) * US, abs=1e-9)
        assert found.waiting_s[rank] == pytest.approx(sum(max(late) - late[rank] for late, _ in meetings) * US, abs=1e-9)
        assert found.transfer_s[rank] == pytest.approx(sum(transfer for _, transfer in meetings) * US, abs=1e-9)
        beyond = [late[rank] - max(late[:rank] + late[rank + 1:]) for late, _ in meetings]
        assert sum(each > 2 for each in beyond) <= found.last[rank] <= sum(each >= 2 for each in beyond)
    assert found.transfer_by_group_s["dp"] == pytest.approx(sum(transfer for _, transfer in meetings) * US, abs=1e-9)


def test_the_rank_that_always_comes_last_is_the_straggler_and_waits_least():
    found = together(_traces([([0, 90, number % 7], 10) for number in range(20)], (0, 5000, -300)))
    assert found.straggler == 1
    assert found.waiting_s[1] == pytest.approx(0, abs=1e-9)
    assert found.caused_s[1] == pytest.approx(sum(90 - (number % 7) / 2 for number in range(20)) * US)
    assert found.longest[0].last == 1


def test_ranks_that_come_last_in_turn_are_no_stragglers():
    turns = [([90 * (rank == number % 3) for rank in range(3)], 10) for number in range(21)]
    assert together(_traces(turns, (0, 0, 0))).straggler is None
    turns = [([90 * (number % 5 < 3), 90 * (number % 5 >= 3), 0], 10) for number in range(20)]
    assert together(_traces(turns, (0, 0, 0))[:2]).last == {0: 12, 1: 8}
    assert together(_traces(turns, (0, 0, 0))[:2]).straggler is None


@pytest.mark.parametrize(("times", "is_one"), [(7, False), (8, True)])
def test_a_few_times_in_a_row_may_be_chance(times, is_one):
    """Of two ranks one comes last seven times in a row in one of 64 runs, eight times in one of 128."""
    found = together(_traces([([0, 90, 0], 10)] * times, (0, 0, 0))[:2])
    assert found.straggler == (1 if is_one else None)


def test_collectives_without_numbers_are_matched_where_one_trace_begins_later():
    meetings = [([0, number * 13 % 50, number * 7 % 40], 5 + number * 3 % 11) for number in range(15)]
    whole, late = (together(_traces(meetings, (0, 900, -50), numbered=False, cut=cut)) for cut in ((0, 0, 0), (0, 4, 0)))
    assert late.offsets_s[1] == pytest.approx(whole.offsets_s[1])
    assert (late.matched, late.unmatched) == (11, 8)


def test_groups_of_one_name_are_told_apart_by_their_ranks():
    def trace(rank):
        pair = (rank // 2 * 2, rank // 2 * 2 + 1)
        row = Collective(operation="all-reduce", start_s=1.0 + rank, end_s=5.0, exposed_s=0.0, group="tp", ranks=pair)
        return RankTrace(file=f"{rank}.json", format="chrome_trace", split=SPLIT, rank=rank, collectives=(row,))

    result = together([trace(rank) for rank in range(4)])
    assert result.ranks == (0, 1)
    assert "no collective joins these ranks to the first one: 2, 3" in result.notes


def test_clocks_are_laid_along_chains_of_groups():
    def trace(rank, *rows):
        return RankTrace(file="", format="chrome_trace", split=SPLIT, rank=rank, collectives=tuple(
            Collective(operation="all-gather", start_s=end - 1, end_s=end, exposed_s=0.0, group=group) for group, end in rows))

    result = together([trace(0, ("a", 5.0)), trace(1, ("a", 15.0), ("b", 25.0)), trace(2, ("b", 125.0))])
    assert result.offsets_s == {0: 0.0, 1: -10.0, 2: -110.0}
    result = together([trace(0, ("a", 5.0)), trace(2, ("a", 15.0), ("b", 25.0)), trace(1, ("b", 125.0))])
    assert result.offsets_s == {0: 0.0, 1: -110.0, 2: -10.0}


def test_two_traces_of_one_rank_and_traces_without_ranks():
    one, two, three = _traces([([0, 1, 2], 5)] * 3, (0, 0, 0))
    assert "two traces are of rank 0: the first one counts" in together([one, one, two]).notes
    nameless = [RankTrace(file="", format="", split=SPLIT, collectives=each.collectives) for each in (one, two, three)]
    assert together(nameless).ranks == (0, 1, 2)


@pytest.mark.parametrize("traces", [[], _traces([([0, 1, 2], 5)], (0, 0, 0))[:1]])
def test_one_trace_waits_for_nobody(traces):
    found = together(traces)
    assert (found.matched, found.straggler, found.longest) == (0, None, ())
