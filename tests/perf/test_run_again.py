"""What a full recomputation runs again: a forward without its end, of which nothing is left out twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.catalog import implementation, implementations
from meshwright.domain.layout import Overlap
from meshwright.perf.layer import layer_time
from meshwright.perf.operators import work_shape
from meshwright.perf.placement import layer_groups
from strategies import small_case

EARLY = sorted(name for name in implementations() if implementation(name).checkpoints)
CAUSES = ("compute", "tensor", "context", "expert", "host")


def _time(case, tensor, *, sequence, sequence_parallel, tiles):
    shape = work_shape(
        microbatch_sequences=1, sequence_tokens=sequence, tensor_parallel=tensor, sequence_parallel=sequence_parallel
    )
    groups = layer_groups(tensor, 1, 1, 1, 8, 1, case.cluster)
    return layer_time(
        case.model.kinds[0], case, shape, groups, overlap=Overlap(tensor=tiles), context_kind="all-gather",
    )


@pytest.mark.parametrize("name", EARLY)
@given(
    model=st.sampled_from(("llama2-7b", "gpt2", "gemma2-9b", "deepseek-v3")), device=st.sampled_from(("h100-sxm", "rtx-4090")),
    tensor=st.sampled_from((1, 2, 4)), sequence=st.sampled_from((64, 1024, 8192)), sequence_parallel=st.booleans(),
    tiles=st.booleans(), ratio=st.sampled_from((0.0, 0.5, 0.95, 1.0)), slowdown=st.sampled_from((0.0, 0.3, 1.0)),
)
@examples(80)
def test_what_is_run_again_is_some_of_the_forward(
    name, model, device, tensor, sequence, sequence_parallel, tiles, ratio, slowdown
):
    case = small_case(model, device, devices=8, layers=4, sequence=sequence, implementation=name)
    constants = replace(case.calibration.constants, overlap_ratio=ratio, contention_slowdown_scale_up=slowdown)
    case = replace(case, calibration=replace(case.calibration, constants=constants))
    time = _time(case, tensor, sequence=sequence, sequence_parallel=sequence_parallel, tiles=tiles)
    for cause in CAUSES:
        again, ahead = (float(np.max(getattr(each, cause))) for each in (time.again, time.forward))
        assert again >= -1e-12 * max(1e-6, ahead), cause
        assert cause == "host" or again <= ahead * (1.0 + 1e-9), cause
