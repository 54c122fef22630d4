"""All checks, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from meshwright.check.advice import advice
from meshwright.check.claims import claims
from meshwright.check.context import Context, Question
from meshwright.check.environment import environment
from meshwright.check.figures import contradictions, likely_models, model_figures
from meshwright.check.launching import launching
from meshwright.check.memory import memory
from meshwright.check.messages import experts, messages, remarks
from meshwright.check.rules import file_rules, limits
from meshwright.check.strangers import strangers
from meshwright.check.surface import keys, twice
from meshwright.check.waste import losses, waste
from meshwright.documents.naming import ASKED_FOR
from meshwright.frameworks.settings import Finding
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.estimate import Estimate

Check = Callable[[Context], Iterable[Finding]]
CHECKS: tuple[Check, ...] = (
    remarks, messages, experts, keys, twice, file_rules, strangers, contradictions, model_figures, limits, memory, environment,
    claims, losses, launching, waste, advice,
)
"""In the order in which a person would look."""
ORDER = ("error", "warning", "advice")


class Checked(Value, frozen=True, kw_only=True):
    """What a check found, worst first, and what it could not look at."""

    findings: tuple[Finding, ...]
    skipped: tuple[str, ...]
    estimate: Estimate | None

    @property
    def ok(self) -> bool:
        """Whether there is no error."""
        return all(each.severity != "error" for each in self.findings)


def check(question: Question, checks: tuple[Check, ...] = CHECKS) -> Checked:
    """Judge files.

    Errors: none for what stands in the files; whatever is wrong with them is a finding.
    """
    context = Context(question)
    if question.impossible:
        context.skipped.append("limits, memory, speed and the guides' rules: what the files say is impossible")
    elif question.case is None:
        context.skipped.append("limits, memory, speed and the guides' rules: " + _missing(question))
    elif context.layout is None:
        context.skipped.append("limits, memory and speed: the files determine no layout")
    elif context.refusals:
        context.skipped.append(f"memory and speed of this layout: {'; '.join(context.refusals)}")
    found: dict[str, Finding] = {}
    if context.layout is None and any(message.id in ASKED_FOR for message in question.reading.messages):
        checks = (remarks, messages)  # anything else would judge defaults
    for each in checks:
        told = {one.message.id for one in found.values()}
        for one in each(context):
            if each is limits and one.message.id in told:
                continue  # a rule about files has said it, with the line
            found.setdefault(str(one.message), one)  # two rules that say the same are one finding
    ordered = sorted(found.values(), key=lambda one: ORDER.index(one.severity))
    return Checked(findings=tuple(ordered), skipped=tuple(context.skipped), estimate=context.estimate)


def _missing(question: Question) -> str:
    """What would make a case, with the model that the figures look like."""
    wanted = question.wanted or "--model, the cluster, --global-batch and --sequence, as far as the files do not say them"
    likely = [] if question.model is not None else likely_models(question.reading)
    like = f"the figures are those of {' or '.join(likely)}: " if likely else ""
    return f"{like}give {wanted.replace('--model', f'--model {likely[0]}', 1) if likely else wanted}"
