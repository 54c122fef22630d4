"""The case of samples that are packed: a model on a cluster with these lengths, and the layout that trains them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from meshwright.api.cases import drafted
from meshwright.api.options import CASE
from meshwright.api.packs import Samples
from meshwright.errors import Message, NoAnswerError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from meshwright.api.cases import Setup
    from meshwright.api.fields import Faults, Values
    from meshwright.domain.layout import Layout

_OF_SAMPLES = {"lengths", "max_tokens", "global_batch", "sequence", "packs", "split_long"}
_SHARED = 64
"""Micro-batches of a replica with which a label is read: enough for all that a label may ask."""


def setup_of(values: Values, lengths: NDArray[np.int64] | None, align: int, faults: Faults) -> tuple[Setup | None, Layout | None]:
    """The case where one is named, and the layout where one is asked for; what is wrong is noted."""
    named = {each.name for each in CASE} - _OF_SAMPLES
    if not (named | {"layout"}) & {*values, *faults.failed}:
        return None, None
    asked: dict[str, Any] = {name: value for name, value in values.items() if name in named}
    if lengths is not None:
        longest = -(-int(lengths.max()) // align) * align
        asked |= {
            "samples": Samples(lengths=lengths, documents=len(lengths), longest_tokens=longest),
            "lengths": values["lengths"] if isinstance(values.get("lengths"), str) else "",
            "global_batch": values.get("global_batch", len(lengths)), "max_tokens": longest,
        }
    else:
        faults.failed.add("lengths")
    given = drafted(asked, faults).setup
    if given is None:
        return None, None
    if "lengths" not in values or not isinstance(values["lengths"], str):
        request = {name: value for name, value in given.request.items() if name != "lengths"}
        given = replace(given, request=request)
    return given, _labelled(given, values, faults)


def _labelled(given: Setup, values: Values, faults: Faults) -> Layout | None:
    """The layout of a label: a micro-batch is one pack, and replicas are as many as was asked for."""
    from meshwright.domain.training import Batch

    if "layout" not in values:
        return None
    case = given.case
    batch = Batch(global_batch_sequences=case.cluster.num_devices * _SHARED, sequence_tokens=case.batch.sequence_tokens)
    with faults.at("layout"):
        layout = replace(given, case=replace(case, batch=batch), samples=None).layout(values["layout"])
        if layout.microbatch_sequences > 1:
            faults.add("pack.microbatch", "mb{size}: a micro-batch is one pack of samples, whose size is --max-tokens",
                       path="--layout", size=layout.microbatch_sequences)
        elif values.get("data_parallel", layout.data_parallel) != layout.data_parallel:
            faults.add("pack.replicas", "--data-parallel {asked:,}, but the layout has dp{found}", path="--layout",
                       asked=values["data_parallel"], found=layout.data_parallel)
        return layout
    return None


def layout_of(given: Setup, values: Values) -> Layout:
    """The best layout whose micro-batch is one pack of the longest sample.

    Errors:  ``NoAnswerError`` where nothing fits; ``InputError`` where nothing is legal.
    """
    from meshwright import search
    from meshwright.search.result import SearchOptions

    pins = {"mb": "1"} | ({"dp": str(values["data_parallel"])} if "data_parallel" in values else {})
    options = SearchOptions(top=1, pins=pins, balance=False)
    result = search.plan(given.case, given.framework.features, options, runner=given.framework)
    if not result.plans:
        words = "no layout fits even micro-batches of one sample of {most:,} tokens; `meshwright plan` says what would"
        raise NoAnswerError(Message("pack.nothing", words, {"most": given.case.batch.sequence_tokens}))
    return result.plans[0].layout
