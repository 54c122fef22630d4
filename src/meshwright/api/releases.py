"""Which release of a framework trains a case at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.errors import Message

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.frameworks.base import Framework


def never(framework: Framework, case: Case) -> list[Message]:
    """Why a framework does not train a case, whatever the layout."""
    from meshwright.domain.layout import Layout

    devices, batch = case.cluster.num_devices, case.batch.global_batch_sequences
    plain = Layout(data_parallel=devices, num_microbatches=max(1, batch // devices))
    reasons = [each for each in framework.check(case, plain) if each.path in {"model", "training", "cluster"}]
    return [Message(each.id, each.template, each.values) for each in reasons]


def later_release(framework: Framework, case: Case) -> str | None:
    """The first later release that trains a case, as ``megatron@0.19``, where the one that is meant never does."""
    from meshwright.frameworks.parts import first_release

    if not never(framework, case):
        return None
    release = first_release(
        framework.version, framework.releases, lambda each: not never(framework.at(each).for_case(case), case)
    )
    return None if release is None else f"{framework.name}@{release}"
