"""How a run ended: one classification, for logs that are read and for trials that are run.

What each sign means for the end stands in ``signs.yaml``. The first cause by time or line counts, not what follows from it: ranks
that lose a peer complain of the network, schedulers say that they killed what had already failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from meshwright.domain.observed import Ending, RunLog, Sign
from meshwright.domain.observed.ending import Status
from meshwright.readers.signs import by_id

CAUSE, MAYBE = 3, 2
BY_SIGNAL = frozenset({"program.killed", "program.signal"})
"""That a signal has ended a process, as its launcher says it: those that wait for it wait on."""
FAILED, CANCELLED = BY_SIGNAL | {"elastic.failed"}, "job.cancelled"
"""That a process has failed, as its launcher says it; and that whoever runs the job has ended it."""
STEPS_AFTER = 2
"""Steps that other ranks may still print behind the words of the one that failed; a run that goes on longer survived them."""
EXITS: Mapping[int, Status] = {0: "ok", 124: "timeout", 130: "cancelled", 137: "oom", -9: "oom", 143: "cancelled", -15: "cancelled"}
"""Exit status of the program (of signals as shells and as Python have them) -> what it mostly means; others: ``user``."""


def ended(logs: Sequence[RunLog], *, exit_status: int | None = None, running: bool = False) -> Ending:
    """The end of the run that all these logs are of, in the order of their ranks.

    ``exit_status``: the launcher's, where it is known; ``running``: whether it still runs.
    """
    if running:
        return Ending(status="running")
    signs = _ordered(sign for log in logs for sign in log.signs if by_id()[sign.id].ends and late(sign, log))
    said = _first_cause(signs)
    steps = sum(len(log.steps) for log in logs)
    if said is None or (exit_status == 0 and by_id()[said.id].weight <= 1):
        if exit_status is None and said is None:
            return Ending(status="unknown")
        by_exit: Status = "ok" if exit_status is None else EXITS.get(exit_status, "user")
        return Ending(status="parse" if by_exit == "ok" and not steps else by_exit)
    status = cast("Status", by_id()[said.id].ends)
    return Ending(status=status, sign=said.id, evidence=said.text, place=said.place, rank=said.rank, at_s=said.at_s)


def _first_cause(signs: Sequence[Sign]) -> Sign | None:
    """Of signs in their order: a cause; what may be one; a consequence; what only says that it ended."""
    weight = {sign.id: by_id()[sign.id].weight for sign in signs}
    for index, sign in enumerate(signs):
        if weight[sign.id] < CAUSE:
            continue
        before = next((each for each in signs[:index] if weight[each.id] == MAYBE), None)
        return before if before is not None and sign.id.startswith("job.") else sign
    failed = next((index for index, sign in enumerate(signs) if sign.id in FAILED), len(signs))
    cancelled = next((index for index, sign in enumerate(signs) if sign.id == CANCELLED), len(signs))
    if failed < cancelled < len(signs):  # whoever runs the others ends them for that
        signs = signs[:cancelled]
    finished = next((index for index, sign in enumerate(signs) if by_id()[sign.id].ends == "ok"), len(signs))
    if all(weight[sign.id] < MAYBE for sign in signs[:finished]) and finished < len(signs):
        return signs[finished]
    return max(signs, key=lambda sign: weight[sign.id], default=None)


def _ordered(signs: Iterable[Sign]) -> list[Sign]:
    """By the clock where each has one, by files and lines otherwise."""
    found = list(signs)
    if all(sign.at_s is not None for sign in found):
        return sorted(found, key=lambda sign: sign.at_s or 0.0)
    return found


def late(sign: Sign, log: RunLog) -> bool:
    """Whether the run did not go on after it, as far as its log says."""
    line = sign.last_line or sign.place.line or 0
    return sum(step.line > line for step in log.steps[-STEPS_AFTER - 1:]) <= STEPS_AFTER
