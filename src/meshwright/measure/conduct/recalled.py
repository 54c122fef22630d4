"""What a store knows of candidates before any is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from meshwright.domain.observed.ending import Status
    from meshwright.measure.chooser import Candidate
    from meshwright.measure.store import Attempt


def recalled(
    candidates: Sequence[Candidate], attempts: Sequence[Attempt], again: Collection[Status]
) -> Iterator[tuple[Candidate, Attempt]]:
    """Candidates whose last attempt has ended for good, and those whose sweep was killed while it ran.

    ``attempts``: by the time they were started; ``again``: how those ended that are run once more.
    """
    last = {each.label: each for each in attempts}
    for candidate in candidates:
        attempt = last.get(candidate.name)
        if attempt is None:
            continue
        if attempt.status not in again if attempt.status is not None else not attempt.alive:
            yield candidate, attempt
