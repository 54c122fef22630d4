"""Sparse attention under transformers: a mask saves nothing, kernels that skip do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from meshwright.api import make_case
from meshwright.catalog import cluster_for, load_model
from meshwright.domain.layout import Layout
from meshwright.estimate.evaluate import evaluate
from meshwright.perf.attention import core_pairs
from meshwright.perf.exchange import selected_width
from meshwright.perf.masked import is_masked, masked_kind, masking_bytes, masking_s
from meshwright.perf.operators import work_shape

if TYPE_CHECKING:
    from meshwright.domain.case import Case

LAYOUT = Layout(data_parallel=512, num_microbatches=1, optimizer_shards=512, gradient_shards=512, parameter_shards=512)


def case_of(model: str, sequence: int, framework: str) -> Case:
    return make_case(model, cluster_for("h100-sxm", num_devices=512), global_batch_sequences=512, sequence_tokens=sequence,
                     framework=framework, calibration="none")


def compute_s(model: str, sequence: int, framework: str) -> float:
    """Compute of one layer of the last kind, forward and backward."""
    time = evaluate(case_of(model, sequence, framework), LAYOUT).costs.kinds[-1].time
    return float(time.forward.compute + time.backward.compute)


@pytest.mark.parametrize("sequence", [4096, 32768])
def test_a_mask_is_never_cheaper_than_dense_causal_attention(sequence: int) -> None:
    for framework in ("deepspeed", "accelerate"):
        assert compute_s("deepseek-v3.2", sequence, framework) > compute_s("deepseek-v3", sequence, framework)
    longer = compute_s("deepseek-v3.2", sequence, "deepspeed") - compute_s("deepseek-v3", sequence, "deepspeed")
    twice = compute_s("deepseek-v3.2", 2 * sequence, "deepspeed") - compute_s("deepseek-v3", 2 * sequence, "deepspeed")
    assert twice == pytest.approx(4.0 * longer, rel=0.1)


@pytest.mark.parametrize(("launch_s", "waits"), [(0.0, False), (0.02, True)])
def test_communication_hides_behind_a_mask_as_behind_all_else(launch_s: float, waits: bool) -> None:
    """And a device that masks while its host launches waits for it that much less."""
    case = case_of("deepseek-v3.2", 4096, "deepspeed")
    constants = replace(case.calibration.constants, launch_s=launch_s)
    time = evaluate(replace(case, calibration=replace(case.calibration, constants=constants)), LAYOUT).costs.kinds[-1].time
    for each, window in ((time.forward, time.forward_window_s), (time.backward, time.backward_window_s)):
        assert (float(each.host) > 0.0) is waits
        assert float(window) == pytest.approx(float(each.compute + each.host), rel=1e-12)


def test_kernels_that_skip_are_cheaper_on_long_sequences() -> None:
    assert compute_s("deepseek-v3.2", 131072, "megatron@0.19") < compute_s("deepseek-v3", 131072, "megatron@0.19")


def test_what_a_mask_and_the_scores_of_an_indexer_take() -> None:
    case = case_of("deepseek-v3.2", 4096, "deepspeed")
    kind = case.model.kinds[-1]
    kept, held = masking_bytes(kind, case, work_shape(microbatch_sequences=2, sequence_tokens=4096))
    assert float(kept) == 2 * 2 * 4096**2
    assert float(held) == 2 * 8 * 64 * 4096**2
    assert is_masked(kind, case)
    scored = next(each for each in load_model("deepseek-v4-flash").kinds if is_masked(each, case))
    kept, held = masking_bytes(scored, case, work_shape(microbatch_sequences=2, sequence_tokens=4096))
    assert float(kept) == 2 * 2 * (4096**2 + 4096 * 1024), "entries of four tokens beside the tokens"
    assert float(held) == 2 * 8 * 64 * 4096 * 1024, "and they alone are scored"
    assert not is_masked(kind, case_of("deepseek-v3.2", 4096, "megatron@0.19"))
    assert not is_masked(load_model("deepseek-v3").kinds[-1], case)


def test_context_ranks_of_sparse_attention_exchange_latents() -> None:
    sparse, taken = (load_model(name).kinds[-1].attention for name in ("deepseek-v3.2", "glm-5.2"))
    assert sparse is not None
    assert taken is not None
    assert selected_width(sparse) == 512 + 64 + 128
    shared = next(each for each in load_model("glm-5.2").attentions if each.indexer is None)
    assert selected_width(shared) == 512 + 64
    layouts = [Layout(context_parallel=8, context_kind="all-gather", data_parallel=64, num_microbatches=8)] * 2
    both = [evaluate(case_of(name, 131072, "megatron@0.19"), layout) for name, layout in
            zip(("deepseek-v3.2", "deepseek-v3"), layouts, strict=True)]
    own, dense = (float(np.asarray(each.costs.kinds[-1].time.forward.context)) for each in both)
    assert own < dense / 20.0


def test_keys_and_entries_of_compressed_attention_are_all_masked() -> None:
    """Twice the sequence are four times the pairs, and the core of a layer that is masked takes them all, window or none."""
    case = case_of("deepseek-v4-flash", 4096, "accelerate")
    kind = next(each for each in case.model.kinds if is_masked(each, case))
    bare = replace(kind, attention=replace(kind.attention, indexer=None))  # type: ignore[arg-type]
    shape = work_shape(microbatch_sequences=1, sequence_tokens=4096)
    full = replace(kind, attention=replace(bare.attention, compressed=None, window_tokens=None))  # type: ignore[arg-type]
    _, entries = masking_s(bare, case, shape)
    _, half = masking_s(full, case, shape)
    missing = 4096**2 * 1.25 - float(core_pairs(masked_kind(kind).attention, 4096, None))  # type: ignore[arg-type]
    assert float(entries / half) == pytest.approx(missing / (4096**2 / 2), rel=0.05)
