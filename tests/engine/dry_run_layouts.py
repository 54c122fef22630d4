"""Layouts that dry runs hold the cost model to: one list for the tests and for the table of ``python -m benchmarks.dry_run``."""

from __future__ import annotations

from dataclasses import dataclass, replace

from meshwright.catalog import calibration, cluster_for
from meshwright.catalog.implementations import implementation
from meshwright.catalog.recipes import optimizer, precision
from meshwright.domain.attention import Attention
from meshwright.domain.case import Case
from meshwright.domain.layout import Full, Layout, Selective
from meshwright.domain.mixers import GatedDelta, Mamba2
from meshwright.domain.model import LayerKind, MixtureOfExperts, Mlp, Model
from meshwright.domain.training import Batch, Training
from meshwright.engine.dry_run import Job

TOKENS = 64
ATTENTION = Attention(num_heads=8, num_key_value_heads=4, head_dim=16)
DENSE = Model(
    name="dense", hidden=128, vocabulary=512, pattern=(0, 0), kinds=(LayerKind(attention=ATTENTION, feed_forward=Mlp(width=256)),),
    rotary_base=10000.0,
)
SHARED = MixtureOfExperts(num_experts=8, experts_per_token=2, expert_width=64, shared_width=64)
MOE = replace(DENSE, name="moe", kinds=(LayerKind(attention=ATTENTION, feed_forward=SHARED),))
NO_SHARED = replace(
    MOE, name="moe-no-shared", kinds=(LayerKind(attention=ATTENTION, feed_forward=replace(SHARED, shared_width=0)),)
)
NORMED = replace(DENSE, name="qk-norm", kinds=(replace(DENSE.kinds[0], attention=replace(ATTENTION, query_key_norm="head")),))
DELTA_MIXER = GatedDelta(key_heads=4, value_heads=8, key_dim=32, value_dim=32, chunk_tokens=16)
MAMBA_MIXER = Mamba2(num_heads=8, head_dim=32, state_dim=32, num_groups=4, chunk_tokens=16)
DELTA = replace(DENSE, name="gated-delta", kinds=(LayerKind(mixer=DELTA_MIXER, feed_forward=Mlp(width=256)),))
MAMBA = replace(DENSE, name="mamba-2", kinds=(LayerKind(mixer=MAMBA_MIXER, norms=1),))
GATED = replace(DENSE, name="gated-attention", kinds=(replace(DENSE.kinds[0], attention=replace(ATTENTION, gate="full")),))
DELTA_MOE = replace(DENSE, name="gated-delta-moe", kinds=(LayerKind(mixer=DELTA_MIXER, feed_forward=SHARED),))
QWEN = replace(DENSE, name="delta-attention", kinds=(DELTA_MOE.kinds[0], GATED.kinds[0]), pattern=(0, 0, 0, 1))
NEMOTRON = replace(
    DENSE, name="mamba-mlp-attention", pattern=(0, 1, 0, 2),
    kinds=(MAMBA.kinds[0], LayerKind(feed_forward=Mlp(width=256, gated=False), norms=1), LayerKind(attention=ATTENTION, norms=1)),
)
FALCON = replace(
    DENSE, name="mamba-beside-attention",
    kinds=(LayerKind(attention=ATTENTION, mixer=MAMBA_MIXER, feed_forward=Mlp(width=256)),),
)
GELU = replace(DENSE, name="gelu", norm="layer", kinds=(replace(DENSE.kinds[0], feed_forward=Mlp(width=256, gated=False)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One rank of one layout of one small model."""

    model: Model
    layout: Layout
    rank: int = 0
    slow: bool = False

    @property
    def job(self) -> Job:
        return Job(model=self.model, layout=self.layout, rank=self.rank, sequence_tokens=TOKENS)


def case_of(model: Model, layout: Layout, sequence_tokens: int = TOKENS) -> Case:
    """The case of a trial: BF16 with FP32 gradients and AdamW, priors, ``torch-eager``."""
    cluster = cluster_for("h100-sxm", num_devices=8 * -(-layout.world // 8))
    sequences = layout.data_parallel * layout.microbatch_sequences * layout.num_microbatches
    return Case(
        model=model, cluster=cluster, batch=Batch(global_batch_sequences=sequences, sequence_tokens=sequence_tokens),
        training=Training(task="pretrain", precision=precision("bf16", "fp32"), optimizer=optimizer("adamw")),
        implementation=implementation("torch-eager"), calibration=calibration("none", cluster.device),
    )


def zero(stage: int, shards: int) -> dict[str, int]:
    """Shards of ZeRO 1, 2 or 3."""
    return dict(list(dict.fromkeys(("optimizer_shards", "gradient_shards", "parameter_shards"), shards).items())[:stage])


def _trial(model: Model, rank: int = 0, *, slow: bool = False, layers: int = 2, **knobs: object) -> Trial:
    """``layers`` of the first kind; of a model with several kinds its own layers."""
    pattern = model.pattern if len(model.kinds) > 1 else (0,) * layers
    return Trial(model=replace(model, pattern=pattern), layout=Layout(**knobs), rank=rank, slow=slow)  # type: ignore[arg-type]


SP = {"tensor_parallel": 2, "sequence_parallel": True}
CP = {"context_parallel": 2, "context_kind": "ulysses"}
CORE = Selective(modules=("core_attn",))
TRIALS = (
    # one of each sort
    _trial(DENSE, **SP, data_parallel=2, **zero(3, 2)),
    _trial(DENSE, tensor_parallel=4, recompute=Full()),
    _trial(DENSE, **CP, recompute=CORE),
    _trial(DENSE, data_parallel=4, num_microbatches=2, **zero(1, 4)),
    _trial(DENSE, recompute=Full(layers=1)),
    _trial(DENSE, 1, layers=4, pipeline_parallel=2, num_microbatches=4),
    _trial(DENSE, 0, slow=True, layers=4, pipeline_parallel=2, virtual_stages=2, num_microbatches=4),
    _trial(MOE, data_parallel=4, expert_parallel=2, **zero(2, 4)),
    _trial(NO_SHARED, **SP, expert_parallel=2, recompute=Full()),
    _trial(NORMED, **SP),
    # sharded data parallelism
    _trial(DENSE),
    _trial(DENSE, slow=True, microbatch_sequences=2),
    _trial(GELU, slow=True),
    _trial(GELU, **SP),
    _trial(DENSE, slow=True, data_parallel=4),
    _trial(DENSE, slow=True, data_parallel=4, num_microbatches=2),
    _trial(DENSE, slow=True, data_parallel=4, **zero(2, 4)),
    _trial(DENSE, data_parallel=4, num_microbatches=3, **zero(2, 4)),
    _trial(DENSE, slow=True, data_parallel=4, **zero(2, 2)),
    _trial(DENSE, data_parallel=4, num_microbatches=2, **zero(2, 2)),
    _trial(DENSE, slow=True, data_parallel=4, **zero(3, 4)),
    _trial(DENSE, 3, data_parallel=4, num_microbatches=2, **zero(3, 4)),
    _trial(DENSE, data_parallel=4, recompute=CORE, **zero(3, 2)),
    _trial(DENSE, slow=True, data_parallel=2, recompute=Full(), **zero(3, 2)),
    # tensor and sequence parallelism
    _trial(DENSE, slow=True, tensor_parallel=2),
    _trial(DENSE, slow=True, tensor_parallel=2, recompute=CORE),
    _trial(DENSE, tensor_parallel=2, data_parallel=2, **zero(2, 2)),
    _trial(DENSE, slow=True, **SP),
    _trial(DENSE, **SP, recompute=CORE),
    _trial(DENSE, slow=True, **SP, recompute=Full()),
    _trial(DENSE, **SP, recompute=Full(layers=1)),
    _trial(DENSE, 1, tensor_parallel=4, sequence_parallel=True),
    _trial(DENSE, slow=True, **SP, microbatch_sequences=2),
    _trial(DENSE, slow=True, **SP, data_parallel=2, num_microbatches=2),
    _trial(DENSE, slow=True, **SP, data_parallel=2, num_microbatches=2, **zero(2, 2)),
    # context parallelism
    _trial(DENSE, slow=True, **CP),
    _trial(DENSE, slow=True, **CP, recompute=Full()),
    _trial(DENSE, **CP, data_parallel=2, **zero(2, 4)),
    _trial(DENSE, 5, **CP, **SP, data_parallel=2, **zero(3, 4)),
    _trial(DENSE, context_parallel=4, context_kind="ulysses"),
    # pipelines
    _trial(DENSE, slow=True, layers=4, pipeline_parallel=2, num_microbatches=4),
    _trial(DENSE, slow=True, layers=4, pipeline_parallel=4, num_microbatches=8),
    _trial(DENSE, 1, slow=True, layers=4, pipeline_parallel=4, num_microbatches=8),
    _trial(DENSE, 3, slow=True, layers=4, pipeline_parallel=4, num_microbatches=8),
    _trial(DENSE, 1, slow=True, layers=4, pipeline_parallel=2, virtual_stages=2, num_microbatches=4),
    _trial(DENSE, layers=4, pipeline_parallel=2, num_microbatches=4, schedule="gpipe"),
    _trial(DENSE, 1, slow=True, layers=4, pipeline_parallel=2, num_microbatches=4, schedule="gpipe"),
    _trial(DENSE, 1, layers=4, pipeline_parallel=2, num_microbatches=4, schedule="zb1p"),
    _trial(DENSE, slow=True, layers=4, pipeline_parallel=2, num_microbatches=4, recompute=Full()),
    _trial(DENSE, 2, slow=True, layers=4, pipeline_parallel=2, data_parallel=2, num_microbatches=4, **zero(2, 2)),
    _trial(DENSE, 4, slow=True, layers=4, pipeline_parallel=2, data_parallel=2, **SP, num_microbatches=4, **zero(2, 2)),
    _trial(DENSE, 2, layers=4, pipeline_parallel=2, **CP, num_microbatches=2, recompute=CORE),
    # experts
    _trial(MOE),
    _trial(NO_SHARED, slow=True),
    _trial(MOE, data_parallel=4, expert_parallel=4),
    _trial(MOE, slow=True, data_parallel=2, expert_parallel=2, recompute=Full()),
    _trial(MOE, slow=True, **SP),
    _trial(MOE, slow=True, **SP, data_parallel=2, expert_parallel=4),
    _trial(MOE, slow=True, data_parallel=4, expert_parallel=2, **zero(3, 4)),
    _trial(MOE, data_parallel=4, expert_parallel=2, recompute=CORE, **zero(2, 2)),
    _trial(MOE, slow=True, layers=4, pipeline_parallel=2, data_parallel=2, expert_parallel=2, num_microbatches=2, **zero(2, 2)),
    # linear mixers
    _trial(DELTA, slow=True),
    _trial(DELTA, slow=True, tensor_parallel=2),
    _trial(DELTA, **SP),
    _trial(DELTA, slow=True, tensor_parallel=4, sequence_parallel=True, data_parallel=2, **zero(2, 2)),
    _trial(DELTA, slow=True, recompute=Full()),
    _trial(DELTA, slow=True, **SP, recompute=Full(layers=1)),
    _trial(DELTA, slow=True, data_parallel=4, **zero(3, 4)),
    _trial(DELTA, 1, slow=True, layers=4, pipeline_parallel=2, num_microbatches=4),
    _trial(MAMBA, slow=True),
    _trial(MAMBA, slow=True, tensor_parallel=2),
    _trial(MAMBA, slow=True, **SP, microbatch_sequences=2),
    _trial(MAMBA, 1, slow=True, tensor_parallel=4, sequence_parallel=True),
    _trial(MAMBA, slow=True, recompute=Full()),
    _trial(MAMBA, slow=True, data_parallel=4, num_microbatches=2, **zero(2, 2)),
    _trial(MAMBA, slow=True, layers=4, pipeline_parallel=2, virtual_stages=2, num_microbatches=4),
    _trial(GATED, slow=True, **SP),
    _trial(DELTA_MOE, slow=True, **SP, data_parallel=2, expert_parallel=4),
    _trial(QWEN, **SP, data_parallel=2, expert_parallel=2, **zero(2, 2)),
    _trial(QWEN, slow=True, data_parallel=2, **zero(3, 2), recompute=CORE),
    _trial(QWEN, 1, slow=True, pipeline_parallel=2, num_microbatches=4),
    _trial(NEMOTRON, slow=True),
    _trial(NEMOTRON, **SP, data_parallel=2, **zero(3, 2)),
    _trial(NEMOTRON, 1, slow=True, pipeline_parallel=2, num_microbatches=4, recompute=Full()),
    _trial(FALCON, slow=True),
)
