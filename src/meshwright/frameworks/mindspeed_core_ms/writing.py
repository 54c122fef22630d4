"""A layout as MindSpeed-Core-MS r0.1.0's YAML: sections of arguments that its configuration classes take."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.documents.quoting import Shell
from meshwright.domain.model import MixtureOfExperts, Mlp
from meshwright.frameworks.ascend.arithmetic import inner_ranks
from meshwright.frameworks.ascend.launch import mindspore_variables, msrun_files, simulation_words
from meshwright.frameworks.ascend.recompute_lists import LISTS, lists_of_parts, parts_of, recomputed_modules
from meshwright.frameworks.ascend.stages import Split, flat_or_nested, normal_stages, split_of
from meshwright.frameworks.base import File, Options, Values
from meshwright.frameworks.keys import Says, decided
from meshwright.frameworks.manual import Blank, Manual, Switch, start_commands, task_variables, train_steps
from meshwright.frameworks.planned import Planned
from meshwright.frameworks.rules import attention_of

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout

ALGORITHMS = {"ring": "megatron_cp_algo", "ulysses": "ulysses_cp_algo", "hybrid": "hybrid_cp_algo"}
UNSPOKEN = (
    "overlap: without wrap_with_ddp (ZeRO 2) no communication of gradients or parameters overlaps",
    "the Ulysses degree of hybrid context parallelism: the ranks of one scale-up domain",
)
FLASH_SELECTS, PLAIN_SELECTS, COMM = "mlp_act", "core_attn", "comm"
SELECTS = (FLASH_SELECTS, PLAIN_SELECTS)
"""What ``select_recompute`` recomputes: with flash attention the MLP's activation if it is a Cell, without it the core."""
CELLS = frozenset({"gelu", "fast_gelu"})
"""Activations that are Cells; swiglu, fused_swiglu and silu are functions, which nothing recomputes."""
DDP_STAGES = (0, 1, 3)
"""ZeRO stages that run in the DDP wrapper; stage 2 is AdamWZeRO, without it."""
WRAPPER = "accelerate_config.parallelization."
"""The wrapper that ``pretrain_gpt.md`` shows (not in the repository)."""
_P = "parallel_config."
RING_ALONE = "experimental"
"""MindFormers' release without a key for the kind of context parallelism: all of it is RingAttention.

Source: branch br_feature_mcore, mindformers/experimental/parallel_core/pynative/transformer/transformer.py ParallelAttention.
"""

PARALLEL = (
    Says(f"{_P}tensor_model_parallel_size", "tensor_parallel", also=(f"{WRAPPER}tensor_parallel",)),
    Says(f"{_P}sequence_parallel", "sequence_parallel", also=(f"{WRAPPER}use_sequence_parallel",)),
    Says(f"{_P}context_parallel_size", "context_parallel"),
    Says(f"{_P}pipeline_model_parallel_size", "pipeline_parallel", also=(f"{WRAPPER}pipeline.num_stages",)),
    Says(f"{_P}expert_model_parallel_size", "expert_parallel"),
    Says(f"{_P}overlap_p2p_comm", "overlap.point_to_point"),
    Says(f"{_P}context_parallel_algo", "context_kind", ALGORITHMS, "ulysses",
         when=lambda plan: plan.cp > 1 and plan.release != RING_ALONE),
    Says(f"{_P}ulysses_degree_in_cp", lambda plan: inner_ranks(plan.case, plan.layout),
         when=lambda plan: plan.cp > 1 and plan.kind == "hybrid"),
    Says(f"{_P}virtual_pipeline_model_parallel_size", "virtual_stages", when=lambda plan: plan.vp > 1,
         also=(f"{WRAPPER}pipeline.virtual_pipeline_model_parallel_size",)),
)
STEP = (
    Says("training_config.wrap_with_ddp", lambda plan: plan.zero in DDP_STAGES),
    Says("training_config.use_distributed_optimizer", lambda plan: plan.zero in DDP_STAGES and plan.zero > 0),
    Says("training_config.overlap_grad_reduce", lambda plan: plan.zero in DDP_STAGES and plan.layout.overlap.gradient_reduce),
    Says("optimizer_config.overlap_param_gather",
         lambda plan: plan.zero in DDP_STAGES and plan.zero > 0 and plan.layout.overlap.parameter_gather),
    Says("dataset_config.batch_size", "microbatch_sequences", also=(f"{WRAPPER}pipeline.micro_batch_size",)),
    Says("dataset_config.micro_batch_num", "num_microbatches"),
)


def own_split(num_layers: int, stages: int, chunks: int) -> Split:
    """Layers where no list is given: over chunks, then over stages, the remainder from the last but one backwards.

    Source: mindspeed_ms/legacy/model/transformer.py ``_get_num_layers``.
    """

    def divided(layers: int, parts: int) -> list[int]:
        counts = [layers // parts] * parts
        for index in range(layers - sum(counts)):
            counts[-index - 2] += 1
        return counts

    return tuple(tuple(divided(layers, stages)) for layers in divided(num_layers, chunks))


def select_module(case: Case) -> str:
    """The module that ``select_recompute`` recomputes for a case."""
    return FLASH_SELECTS if case.implementation.flash_attention else PLAIN_SELECTS


def decide(case: Case, layout: Layout, release: str) -> Values:
    """The keys that express a layout."""
    plan = Planned(case, layout, release)
    keys, split = decided(PARALLEL, plan), split_of(case, layout)
    if split != own_split(case.model.num_layers, layout.pipeline_parallel, layout.virtual_stages):
        keys[f"{_P}num_layer_list"] = flat_or_nested(split, layout.virtual_stages)
    full, lists = lists_of_parts(parts_of(layout.recompute, split), (*SELECTS, COMM), split, behind_full=True)
    for name, counts in zip(LISTS, (full, lists[select_module(case)], lists[COMM]), strict=True):
        if any(map(any, counts)):
            keys[f"{_P}recompute_config.{name}"] = flat_or_nested(counts, layout.virtual_stages)
    if layout.zero_stage >= 2:
        keys[f"{_P}zero_level"] = f"z{layout.zero_stage}"
    return keys | decided(STEP, plan)


def normal(case: Case, layout: Layout) -> Layout:
    """The layout as its YAML says it."""
    wrapped, overlap = layout.zero_stage in DDP_STAGES, layout.overlap
    overlap = replace(
        overlap, gradient_reduce=wrapped and overlap.gradient_reduce,
        parameter_gather=wrapped and layout.zero_stage > 0 and overlap.parameter_gather, tensor=False, expert=False,
    )
    kind = layout.context_kind if layout.context_parallel > 1 else "ring"
    return replace(normal_stages(case, layout), overlap=overlap, context_kind=kind)


class Home(Struct, frozen=True, kw_only=True):
    """Whose sources read the YAML."""

    title: str
    variable: str
    """Names the checkout."""
    checkout: str
    """The repository, and what of it."""
    needs: str
    lists: str
    """How lists by stage are read."""


MINDSPEED_MS = Home(
    title="MindSpeed-Core-MS", variable="MINDSPEED_MS_PATH", checkout="MindSpeed-Core-MS at r0.1.0",
    needs="A training script calls `init_configs_from_yaml` and `pretrain`, as `docs/source_zh_cn/usage/pretrain_gpt.md` shows.",
    lists="Lists by stage are `[virtual stage][stage]`, as r0.1.0 reads them; br_master reads the transpose.",
)


def write(case: Case, layout: Layout, release: str, options: Options, home: Home = MINDSPEED_MS) -> tuple[File, ...]:
    """``config.yaml``, ``launch.sh``, ``probe.sh`` and ``README.md``."""
    return msrun_files(
        case, layout, options, _manual(case, layout, release, options, home), document=_config(case, layout, release, options),
        checkout=home.variable, command='"$TRAIN_SCRIPT" --config_path "$HERE/config.yaml"',
    )


def _config(case: Case, layout: Layout, release: str, options: Options) -> dict[str, dict[str, object]]:
    """The whole document, section by section."""
    precision = "bfloat16" if case.training.precision.base_dtype == "bf16" else "float16"
    document: dict[str, dict[str, object]] = {
        "parallel_config": {"recv_dtype": precision},
        "training_config": {
            "seed": 42, "training_iters": train_steps(case, options), "log_interval": 1, "bf16": precision == "bfloat16",
            "fp16": precision == "float16",
            "accumulate_allreduce_grads_in_fp32": case.training.precision.gradient_bytes >= 4,
        },
        "dataset_config": {"data_layout": "SBH"},
        "optimizer_config": {"optimizer_type": "SpeedAdamW", "weight_decay": 0.1, "clip_grad": 1.0},
        "model_config": _model(case, layout),
    }
    experts = case.model.experts
    if experts:
        document["moe_config"] = {"num_experts": experts.num_experts, "moe_router_topk": experts.experts_per_token,
                                  "moe_token_dispatcher_type": "alltoall"}
    for key, value in {**decide(case, layout, release), **options.launch.keys}.items():
        section, _, name = key.partition(".")
        outer, dot, inner = name.partition(".")
        if dot:
            document[section].setdefault(outer, {})[inner] = value  # type: ignore[index]
        else:
            document[section][name] = value
    return document


def _model(case: Case, layout: Layout) -> dict[str, object]:
    """The model's section."""
    model, attention, block = case.model, attention_of(case), case.model.feed_forward
    width = block.expert_width if isinstance(block, MixtureOfExperts) else block.width
    precision = "bfloat16" if case.training.precision.base_dtype == "bf16" else "float16"
    return {
        "vocab_size": -(-model.vocabulary // layout.tensor_parallel) * layout.tensor_parallel,
        "seq_length": case.batch.sequence_tokens,
        "num_layers": model.num_layers, "hidden_size": model.hidden, "ffn_hidden_size": width,
        "num_attention_heads": attention.num_heads, "kv_channels": attention.head_dim,
        "group_query_attention": attention.num_key_value_heads != attention.num_heads,
        "num_query_groups": attention.num_key_value_heads,
        "position_embedding_type": "rope" if model.position == "rope" else "learned_absolute",
        "qkv_has_bias": attention.query_bias, "out_proj_has_bias": attention.output_bias,
        "mlp_has_bias": isinstance(block, Mlp) and block.bias,
        "hidden_act": "swiglu" if block.gated else "gelu", "apply_swiglu_fusion": block.gated,
        "normalization": "FusedRMSNorm" if model.norm == "rms" else "LayerNorm",
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "use_flash_attention": case.implementation.flash_attention, "apply_rope_fusion": model.position == "rope",
        "params_dtype": precision, "compute_dtype": precision, "softmax_compute_dtype": "float32",
    }


def _manual(case: Case, layout: Layout, release: str, options: Options, home: Home) -> Manual:
    """What the README and the scripts say."""
    selective = Switch(name="parallel_config.recompute_config.select_recompute", risk="equivalent",
                       what="recomputes the activation function of the MLP (with flash attention), if it is a Cell")
    comm = Switch(name="parallel_config.recompute_config.select_comm_recompute", risk="equivalent",
                  what="gathers the input of the column-parallel projections again in the backward pass: less memory "
                       "with sp")
    before = f"{home.variable}=/path/to/{home.checkout.replace(',', ' ').split()[0]}"
    return Manual(
        title=f"{home.title} {release}", needs=home.needs, commands=start_commands(layout, case, before=before),
        blanks=(
            Blank(name=home.variable, default=Shell("$PWD"), what=f"checkout of {home.checkout}"),
            Blank(name="TRAIN_SCRIPT", default="pretrain_gpt.py", what="your script; it takes --config_path and reads the data"),
        ),
        variables=(*task_variables(case), *mindspore_variables()),
        off=tuple(
            switch for switch, module, able in ((selective, select_module(case), True), (comm, COMM, layout.sequence_parallel))
            if able and module not in recomputed_modules(layout.recompute)
        ),
        probe=simulation_words(layout, options, before, mock=True),
        assumed=(
            "Data, tokenizer, learning rate and checkpoints are the script's.",
            "The vocabulary is padded to a multiple of tensor parallelism.",
            *((home.lists,) if layout.pipeline_parallel > 1 else ()),
        ),
    )
