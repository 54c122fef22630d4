"""Frameworks that can be planned for, though no files are written for them yet.

Sources: the configuration surfaces of each framework at the versions below. What has no key is declared absent, so that
the search never offers it.
"""

from __future__ import annotations

from meshwright.domain.features import Features
from meshwright.frameworks.base import Framework

_MEGATRON_MODULES = ("core_attn", "layernorm", "mlp", "moe_act", "moe", "mla_up_proj", "shared_experts")

BRIDGE = Framework(
    name="bridge",
    title="Megatron-Bridge",
    aliases=("megatron-bridge", "nemo"),
    implementation="megatron-te",
    version="0.3",
    features=Features(
        name="bridge",
        zero_stages=(0, 1, 2, 3),
        context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
        selective_modules=_MEGATRON_MODULES,
        tasks=("pretrain", "sft", "lora"),
    ),
)

MEGATRON_DEEPSPEED = Framework(
    name="megatron-deepspeed",
    title="Megatron-DeepSpeed",
    implementation="megatron-deepspeed",
    version="4efb479d",
    features=Features(
        name="megatron-deepspeed",
        schedules=("1f1b",),  # interleaving is parsed, the DeepSpeed engine has none
        zero_stages=(0, 1, 2, 3),
        partial_sharding=False,
        context_kinds=("ulysses",),
        expert_tensor_parallel=False,
        uneven_stages=False,
        recompute_first_layers=False,  # the pipeline engine does not apply the block method
        positions=("rope", "learned"),
        overlaps=(),
        tasks=("pretrain",),
    ),
)

DEEPSPEED = Framework(
    name="deepspeed",
    title="DeepSpeed",
    implementation="torch-eager",
    version="0.19",
    features=Features(
        name="deepspeed",
        schedules=("1f1b",),
        zero_stages=(0, 1, 2, 3),
        partial_sharding=False,  # MiCS was removed; hpZ splits weights only
        context_kinds=("ulysses",),
        pipeline_parallel=False,  # only as PipelineModule in code
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope", "learned", "alibi", "none"),
        overlaps=("grad", "param"),
        tasks=("pretrain", "sft", "lora"),
    ),
)

CHATLEARN = Framework(
    name="chatlearn",
    title="ChatLearn",
    implementation="megatron-te",
    version="b7af31a9",
    features=Features(
        name="chatlearn",
        partial_sharding=False,  # the number of optimizer instances is no declared argument
        selective_modules=_MEGATRON_MODULES,
        optimizer_offload=False,  # between the phases only
        overlaps=("p2p", "ep"),
        tasks=("sft",),
    ),
)

MINDSPEED_CORE_MS = Framework(
    name="mindspeed-core-ms",
    title="MindSpeed-Core-MS",
    aliases=("mindspeed-ms",),
    implementation="mindspeed",
    version="r0.1.0",
    features=Features(
        name="mindspeed-core-ms",
        zero_stages=(0, 1, 3),
        context_kinds=("ring", "ulysses", "hybrid"),
        expert_tensor_parallel=False,
        positions=("rope", "learned"),
        optimizer_offload=False,
        recompute_per_stage=True,
        overlaps=("grad", "param", "p2p"),
    ),
)

MINDFORMERS = Framework(
    name="mindformers",
    title="MindFormers",
    implementation="mindspeed",
    version="2.1",
    features=Features(
        name="mindformers",
        schedules=("1f1b", "interleaved", "gpipe"),
        zero_stages=(0, 1, 2, 3),
        parameter_shards_with_pipeline=True,
        context_kinds=("ring", "ulysses", "hybrid"),
        expert_tensor_parallel=False,
        positions=("rope", "learned", "alibi", "none"),
        recompute_per_stage=True,
        overlaps=("grad", "param", "p2p"),
        sequence_parallel_with_tensor=True,
    ),
)

MINDSPEED_LLM = Framework(
    name="mindspeed-llm",
    title="MindSpeed-LLM",
    aliases=("mindspeed",),
    implementation="mindspeed",
    version="c77308a",
    features=Features(
        name="mindspeed-llm",
        schedules=("1f1b", "interleaved", "dualpipev"),
        context_kinds=("ring", "all-gather", "ulysses", "hybrid"),
        selective_modules=_MEGATRON_MODULES,
        positions=("rope", "learned", "alibi", "none"),
        tasks=("pretrain", "sft", "lora"),
    ),
)

NANOTRON = Framework(
    name="nanotron",
    title="nanotron",
    implementation="nanotron",
    version="0.4",
    features=Features(
        name="nanotron",
        schedules=("1f1b", "gpipe"),
        fills_pipeline=True,  # pipeline_parallel/engine.py asserts it; none of 124 such runs of the playbook worked
        partial_sharding=False,
        expert_parallel=False,  # a degree above one has no place in its grid of ranks
        expert_tensor_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope",),
        optimizer_offload=False,
        overlaps=("grad", "tp"),
        tasks=("pretrain",),
    ),
)

PICOTRON = Framework(
    name="picotron",
    title="picotron",
    implementation="torch-eager",
    version="59714b1",
    features=Features(
        name="picotron",
        schedules=("1f1b", "gpipe"),
        zero_stages=(0,),
        partial_sharding=False,
        expert_parallel=False,
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none",),
        recompute_first_layers=False,
        positions=("rope",),
        optimizer_offload=False,
        overlaps=("grad",),
        mixture_of_experts=False,
        tasks=("pretrain",),
    ),
)

TORCHTITAN = Framework(
    name="torchtitan",
    title="torchtitan",
    implementation="torchtitan",
    version="0.3",
    features=Features(
        name="torchtitan",
        schedules=("1f1b", "interleaved", "gpipe", "zb1p", "dualpipev"),
        zero_stages=(0, 2, 3),  # fully_shard without or with resharding after forward
        parameter_shards_with_pipeline=True,
        context_kinds=("all-gather", "ring"),
        expert_tensor_parallel=False,  # removed in 0.3
        recompute_first_layers=False,
        positions=("rope",),
        overlaps=("grad", "param", "tp"),
        tasks=("pretrain", "sft"),
    ),
)

ACCELERATE = Framework(
    name="accelerate",
    title="HF accelerate",
    aliases=("fsdp2", "hf-accelerate"),
    implementation="torch-eager",
    version="1.14",
    features=Features(
        name="accelerate",
        schedules=("1f1b",),
        zero_stages=(0, 2, 3),
        context_kinds=("all-gather",),
        pipeline_parallel=False,
        expert_parallel=False,
        expert_tensor_parallel=False,
        sequence_parallel=False,
        uneven_stages=False,
        recompute=("none", "full"),
        recompute_first_layers=False,
        positions=("rope", "learned", "alibi", "none"),
        overlaps=("grad", "param"),
        tasks=("pretrain", "sft", "lora"),
    ),
)

DECLARED = (
    BRIDGE, MEGATRON_DEEPSPEED, DEEPSPEED, CHATLEARN, MINDSPEED_CORE_MS, MINDFORMERS, MINDSPEED_LLM, NANOTRON, PICOTRON,
    TORCHTITAN, ACCELERATE,
)  # fmt: skip
