"""What a store knows of candidates before any is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from meshwright.domain.observed.ending import Status
    from meshwright.measure.chooser import Candidate
    from meshwright.measure.store import Attempt, Store


def recalled(
    subject: str, candidates: Sequence[Candidate], store: Store, again: Collection[Status]
) -> Iterator[tuple[Candidate, Attempt]]:
    """Candidates whose last attempt has ended for good, and those whose sweep was killed while it ran.

    ``again``: how those ended that are run once more.
    """
    for candidate in candidates:
        attempt = store.last(subject, candidate.name)
        if attempt is None:
            continue
        if attempt.status not in again if attempt.status is not None else not attempt.alive:
            yield candidate, attempt
