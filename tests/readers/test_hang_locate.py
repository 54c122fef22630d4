"""Hangs of programs that are run by hand: each rank does its collectives in order, something goes wrong, all records are asked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.sources import reads

from meshwright.domain.observed import CollectiveEntry, Hanging, RankProgress
from meshwright.readers.hangs.locate import hangs, located
from meshwright.readers.logs.watchdog import FORMAT as WATCHDOG


@dataclass(frozen=True)
class Step:
    group: str
    operation: str
    elements: int


def run(programs: dict[int, list[Step]], groups: dict[str, tuple[int, ...]], ahead: int) -> tuple[dict, dict, dict]:
    """Every rank asks for up to ``ahead`` collectives that did not end; each device does them in the order asked.

    Gives, of each rank, how many steps it asked for, how many its device ended, and the numbers of its steps in their groups.
    """
    asked, ended = dict.fromkeys(programs, 0), dict.fromkeys(programs, 0)
    numbers: dict[int, list[int]] = {}
    for rank, steps in programs.items():
        seen: dict[str, int] = {}
        numbers[rank] = []
        for each in steps:
            numbers[rank].append(seen.get(each.group, 0))
            seen[each.group] = numbers[rank][-1] + 1
    moved = True
    while moved:
        moved = False
        for rank, steps in programs.items():
            while asked[rank] < len(steps) and asked[rank] - ended[rank] < ahead:
                asked[rank] += 1
                moved = True
        for rank, steps in programs.items():
            if ended[rank] >= asked[rank]:
                continue
            step, number = steps[ended[rank]], numbers[rank][ended[rank]]
            if all(ended[other] < asked[other] and programs[other][ended[other]] == step and numbers[other][ended[other]] == number
                   for other in groups[step.group]):
                for other in groups[step.group]:
                    ended[other] += 1
                moved = True
    return asked, ended, numbers


def recorded(programs: dict[int, list[Step]], groups: dict[str, tuple[int, ...]], ahead: int, *, entries: bool = True,
             members: bool = True) -> list[Hanging]:
    """One file a rank, as a flight recorder or (without entries) a watchdog would have it."""
    asked, ended, numbers = run(programs, groups, ahead)
    files = []
    for rank, steps in programs.items():
        said, progress = [], []
        for group in groups:
            mine = [at for at, each in enumerate(steps[: asked[rank]]) if each.group == group]
            done = [at for at in mine if at < ended[rank]]
            if rank in groups[group]:
                progress.append(RankProgress(rank=rank, group=group, last_enqueued=numbers[rank][mine[-1]] if mine else -1,
                                             last_completed=numbers[rank][done[-1]] if done else -1))
        for at, each in enumerate(steps[: asked[rank]]):
            state = "completed" if at < ended[rank] else "started" if at == ended[rank] else "scheduled"
            said.append(CollectiveEntry(rank=rank, group=each.group, sequence=numbers[rank][at], operation=each.operation,
                                        state=state, elements_in=each.elements))
        files.append(Hanging(file=str(rank), format="test", entries=tuple(said) if entries else (), progress=tuple(progress),
                             groups=groups if members else {}))
    return files


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, tuple[int, ...]], list[Step], int]:
    """Groups (all ranks, halves, pairs across) and a program that all ranks share."""
    half = draw(st.sampled_from([2, 3, 4]))
    groups = {"world": tuple(range(2 * half)), "low": tuple(range(half)), "high": tuple(range(half, 2 * half))}
    groups |= {f"pair{at}": (at, at + half) for at in range(half)}
    kinds = [("world",), ("low", "high"), tuple(f"pair{at}" for at in range(half))]
    program = []
    for at in range(draw(st.integers(4, 14))):
        kind = draw(st.sampled_from(kinds))
        operation, size = draw(st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"])), 8 * (at % 3 + 1)
        program += [Step(group, operation, size) for group in kind]
    return groups, program, draw(st.integers(1, 4))


def shares(program: list[Step], groups: dict[str, tuple[int, ...]]) -> dict[int, list[Step]]:
    return {rank: [each for each in program if rank in groups[each.group]] for rank in groups["world"]}


@examples(60)
@given(worlds(), st.data(), st.booleans(), st.booleans())
def test_a_rank_that_stops_is_the_one_that_is_missing(world, data, entries, members):
    groups, program, ahead = world
    programs = shares(program, groups)
    rank = data.draw(st.sampled_from(groups["world"]))
    stop = data.draw(st.integers(0, len(programs[rank]) - 1))
    left_out = programs[rank][stop]
    number = sum(each.group == left_out.group for each in programs[rank][:stop])
    programs[rank] = programs[rank][:stop]
    found = located(recorded(programs, groups, ahead, entries=entries, members=members))
    assert found is not None
    assert (found.kind, found.ranks) == ("missing", (rank,))
    missed = {each.group: sum(step.group == each.group for step in programs[rank]) for each in program}
    assert found.sequence == missed[found.group], "the first of the group that it did not ask for"
    if found.group == left_out.group:
        assert found.sequence == number


@examples(60)
@given(worlds(), st.data())
def test_a_collective_left_out_in_one_group_is_found_where_it_is_seen(world, data):
    groups, _, ahead = world
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=10))
    program = [Step("world", "all_reduce", size) for size in sizes]
    programs = shares(program, groups)
    rank, at = data.draw(st.sampled_from(groups["world"])), data.draw(st.integers(0, len(sizes) - 1))
    programs[rank] = programs[rank][:at] + programs[rank][at + 1:]
    found = located(recorded(programs, groups, ahead))
    assert found is not None
    first = next((number for number in range(at, len(sizes) - 1) if sizes[number] != sizes[number + 1]), None)
    if first is None:
        assert (found.kind, found.ranks, found.sequence) == ("missing", (rank,), len(sizes) - 1)
    else:
        assert (found.kind, found.ranks, found.sequence) == ("mismatch", (rank,), first)


@examples(60)
@given(worlds(), st.data())
def test_two_in_the_wrong_order_are_found(world, data):
    groups, program, ahead = world
    programs = shares(program, groups)
    rank = data.draw(st.sampled_from(groups["world"]))
    own = programs[rank]
    places = [at for at in range(len(own) - 1) if own[at] != own[at + 1]
              and (own[at].group == own[at + 1].group or {own[at].group, own[at + 1].group} <= {"world", "low", "high"})]
    if not places or len(groups["low"]) < 3:
        return
    at = data.draw(st.sampled_from(places))
    one, other = own[at], own[at + 1]
    programs[rank] = [*own[:at], other, one, *own[at + 2:]]
    found = located(recorded(programs, groups, ahead))
    number = sum(each.group == one.group for each in own[:at])
    if one.group == other.group:
        assert found is not None
        either = groups[one.group] if len(groups[one.group]) == 2 else (rank,)  # of two, nobody can tell which is wrong
        assert (found.kind, found.ranks, found.group, found.sequence) == ("mismatch", either, one.group, number)
    elif ahead == 1:
        assert found is not None
        assert (found.kind, found.ranks) == ("missing", (rank,))
        assert (found.group, found.sequence) == (one.group, number)
    elif found is not None:
        assert rank in found.ranks or rank in found.waiting


def test_a_run_that_ends_does_not_hang():
    groups = {"world": (0, 1, 2)}
    assert hangs(recorded(shares([Step("world", "all_reduce", 8)] * 5, groups), groups, 2)) == ()


def watchdog(rank: int, sequence: int, operation: str, *, enqueued: int, completed: int, elements: int = 8) -> Hanging:
    entry = CollectiveEntry(rank=rank, group="0", sequence=sequence, operation=operation, state="timed out", elements_in=elements)
    return Hanging(file="log", format="watchdog", entries=(entry,), progress=(reached(rank, enqueued, completed),))


def reached(rank: int, enqueued: int, completed: int, started: int | None = None) -> RankProgress:
    return RankProgress(rank=rank, group="0", last_enqueued=enqueued, last_completed=completed, last_started=started)


def test_watchdogs_lines_are_enough():
    lines = [watchdog(rank, 9, "ALLREDUCE", enqueued=9 + rank % 2, completed=8) for rank in range(3)]
    found = located([*lines, Hanging(file="log", format="watchdog", progress=(reached(3, 8, 8),))])
    assert found is not None
    assert (found.kind, found.ranks, found.collective, found.sequence) == ("missing", (3,), "ALLREDUCE", 9)
    assert found.waiting == (0, 1, 2)


@pytest.mark.parametrize(("operation", "elements"), [("ALLGATHER", 8), ("ALLREDUCE", 16)])
def test_another_operation_or_size_at_the_same_number_is_a_mismatch(operation, elements):
    lines = [watchdog(rank, 9, "ALLREDUCE", enqueued=9, completed=8) for rank in range(3)]
    found = located([*lines, watchdog(3, 9, operation, enqueued=9, completed=8, elements=elements)])
    assert found is not None
    assert (found.kind, found.ranks, found.sequence, found.collective) == ("mismatch", (3,), 9, "ALLREDUCE")
    assert [each.operation for each in found.instead] == [operation]


def test_several_collectives_in_one_may_differ_in_size_and_sends_are_counted_apart():
    lines = [watchdog(rank, 610, "COALESCED", enqueued=616, completed=609, elements=100 + rank) for rank in range(4)]
    found = located([*lines, watchdog(4, 3, "SEND", enqueued=616, completed=609)])
    assert found is not None
    assert (found.kind, found.collective, found.sequence) == ("unknown", "COALESCED", 610)


def test_of_hangs_that_explain_each_other_the_one_with_fewer_culprits_is_the_cause():
    """Ranks 0 and 1 wait in y for the others, who wait in x for them; rank 6 waits for 2, who is one of the others."""
    def in_group(group: str, waiting: range | tuple, missing: range | tuple) -> tuple[RankProgress, ...]:
        return tuple(RankProgress(rank=rank, group=group, last_enqueued=9 - (rank in missing), last_completed=8)
                     for rank in (*waiting, *missing))

    progress = (*in_group("z", (6,), (2,)), *in_group("y", (0, 1), range(2, 6)), *in_group("x", range(2, 6), (0, 1)))
    found = hangs([Hanging(file="f", format="t", progress=progress)])
    assert [(each.group, each.ranks) for each in found[:1]] == [("x", (0, 1))]
    assert {each.group for each in found} == {"x", "y", "z"}


def test_ranks_that_say_nothing_are_those_that_are_missing():
    lines = [Hanging(file="log", format="watchdog", progress=(reached(rank, 9, 8),), groups={"0": (0, 1, 2, 3)})
             for rank in range(3)]
    found = located(lines)
    assert found is not None
    assert (found.kind, found.ranks, found.silent) == ("missing", (3,), (3,))


def test_all_in_it_is_stalled_and_one_whose_device_has_not_begun_is_late():
    def record(started: dict[int, int]) -> list[Hanging]:
        return [Hanging(file=str(rank), format="test", groups={"0": (0, 1, 2)}, progress=(reached(rank, 9, 8, at),))
                for rank, at in started.items()]

    stalled, late = located(record({0: 9, 1: 9, 2: 9})), located(record({0: 9, 1: 8, 2: 9}))
    assert stalled is not None
    assert late is not None
    assert (stalled.kind, stalled.ranks) == ("stalled", (0, 1, 2))
    assert (late.kind, late.ranks, late.sequence) == ("late", (1,), 9)


def test_a_receive_waits_for_the_peer_that_never_sends():
    receive = CollectiveEntry(rank=1, group="pp", sequence=4, operation="nccl:recv 1<-0", state="started", point_to_point=True)
    done = CollectiveEntry(rank=0, group="pp", sequence=3, operation="nccl:send 0->1", state="completed", point_to_point=True)
    found = located([Hanging(file="1", format="test", entries=(receive,), groups={"pp": (0, 1)}),
                     Hanging(file="0", format="test", entries=(done,), groups={"pp": (0, 1)})])
    assert found is not None
    assert (found.kind, found.ranks, found.waiting, found.sequence) == ("missing", (0,), (1,), 4)


WAITS = """\
[rank{rank}]:[E419 10:42:28.8 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: \
WorkNCCL(SeqNum={at}, OpType={operation}, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600013 milliseconds before timing out
[rank{rank}]:[E419 10:42:28.9 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID 9 Rank {rank}] Exception (either an error or timeout) \
detected by watchdog at work: {at}, last enqueued NCCL work: {last}, last completed NCCL work: {done}.
"""


@pytest.mark.parametrize(("odd", "kind", "ranks"), [
    ({"at": 4480, "last": 4485, "done": 4479}, "late", (2,)), ({"operation": "ALLGATHER"}, "mismatch", (2,)),
    ({}, "unknown", (0, 1, 2, 3))])
def test_a_users_report_is_enough(tmp_path, odd, kind, ranks):
    said = {"at": 4486, "operation": "ALLTOALL", "last": 4489, "done": 4485}
    text = "".join(WAITS.format(rank=rank, **(said | (odd if rank == 2 else {}))) for rank in range(4))
    found = located(reads(WATCHDOG, tmp_path, text))
    assert found is not None
    assert (found.kind, found.ranks, found.group) == (kind, ranks, "9")
    assert found.collective == "ALLTOALL"


def test_numbers_of_several_groups_without_their_names_locate_nothing(tmp_path):
    line = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, Timeout(ms)=1800000)" \
           " ran for 1800887 milliseconds before timing out.\n"
    found = located(reads(WATCHDOG, tmp_path, line.format(0, 96120) + line.format(0, 96117) + line.format(7, 64088)))
    assert found is not None
    assert (found.kind, found.ranks, found.collective, found.sequence) == ("unknown", (0, 7), "ALLREDUCE", None)


def test_who_is_missing_is_not_known_where_nobody_says_which_ranks_there_are():
    lines = [watchdog(rank, 9, "ALLREDUCE", enqueued=9, completed=8) for rank in range(3)]
    found, of_four = located(lines), located(lines, world=4)
    assert found is not None
    assert of_four is not None
    assert (found.kind, found.sequence, found.collective) == ("unknown", 9, "ALLREDUCE")
    assert (of_four.kind, of_four.ranks) == ("missing", (3,))


def test_an_entry_that_does_not_name_its_group_is_of_the_ranks_only_one():
    progress = [RankProgress(rank=rank, group="5(tp)", last_enqueued=9 - (rank == 1), last_completed=8) for rank in range(3)]
    entry = CollectiveEntry(rank=0, group="", sequence=9, operation="ALLGATHER", state="timed out")
    (found,) = hangs([Hanging(file="log", format="watchdog", progress=tuple(progress), entries=(entry,))])
    assert (found.kind, found.ranks, found.group, found.collective) == ("missing", (1,), "5(tp)", "ALLGATHER")
