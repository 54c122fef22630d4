"""A run as a row of measured runs, so that ``calibrate`` learns from it; the schema is that of the corpus that ships."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from meshwright.errors import NoAnswerError, fault
from meshwright.evidence.rows.written import row_of_case

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run


def row_of(run: Run) -> dict[str, str]:
    """Column -> cell; what is not known is blank. The identifier is that of what was read, so that the same log is the same row.

    Errors:  ``InputError`` where the case, its layout or a steady step is not known, and where no row has words for it.
    """
    facts, steady, log = run.facts, run.steady, run.log
    if facts is None or log is None:
        raise fault(
            "diagnose.row",
            "a row needs the model, the device and the layout of the run: --plan, or --model and --device beside a "
            "log that prints its arguments",
        )
    if steady is None:
        raise NoAnswerError(fault("diagnose.row-steps", "the log has no steps to make a row of").messages)
    if run.phases is not None:
        raise fault(
            "diagnose.row-phases", "a row is of training steps: the log has steps of reinforcement learning, a part of which trains"
        )
    digest = hashlib.sha256(repr([(each.number, each.step_s) for each in steady.steps]).encode()).hexdigest()
    return row_of_case(
        facts.case, facts.layout, id=f"run-{digest[:12]}", source=f"diagnosed from {log.file}", step_s=steady.step_s,
        framework=run.framework.name if run.framework else "", version=run.framework.version if run.framework else "",
        memory_bytes=run.memory_bytes,
        notes=f"median of {len(steady.steps)} steps from {steady.steps[0].number} to {steady.steps[-1].number}",
    )
