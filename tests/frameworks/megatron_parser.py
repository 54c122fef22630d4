"""Runs in a process of its own: Megatron-LM's argument checks over command lines, from a source checkout.

``python megatron_parser.py [SOURCE] < cases.jsonl > verdicts.jsonl``; a case is ``{"argv", "world", "env"}``, a verdict
``{"accepted", "why", "parameters"}``. Where a case names ``ranks``, the model is built for each of them without memory
(local layers, core 0.16) and its parameters are counted. Without SOURCE the wheel ``megatron-core`` serves, which has no
parser: then the arguments are read by name, which is enough for the fields of its configuration. Kernels, devices and
Transformer Engine are stood in for; nothing here is Megatron-LM's.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib.util
import io
import json
import os
import sys
import typing
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock


def prepare(source: str) -> None:
    """Stand-ins for what a machine without GPU or Transformer Engine lacks."""
    warnings.simplefilter("ignore")
    if source:
        sys.path.insert(0, source)
    if not hasattr(typing, "override"):
        typing.override = lambda function: function  # type: ignore[attr-defined]
    import torch

    torch.cuda.get_device_properties = lambda *_: SimpleNamespace(  # type: ignore[assignment]
        major=9, minor=0, multi_processor_count=132, total_memory=80 << 30, name="H100"
    )
    torch.cuda.get_device_capability = lambda *_: (9, 0)  # type: ignore[assignment]
    torch.cuda.current_device = lambda: 0  # type: ignore[assignment]
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)  # older versions log through it
    import megatron.core.utils as core_utils
    from megatron.core import parallel_state
    from megatron.core.models.common.embeddings import rope_utils
    from megatron.core.transformer.moe import moe_utils
    from packaging.version import Version

    core_utils._te_version = Version("2.9.0")
    if source:
        asked = parallel_state.get_context_parallel_world_size
        parallel_state.get_context_parallel_world_size = lambda: 1  # core 0.11 asks while it is imported
        import megatron.training.arguments  # noqa: F401

        parallel_state.get_context_parallel_world_size = asked
    for name in ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd"):
        setattr(rope_utils, name, lambda *_: None)
    from megatron.core.transformer import dot_product_attention, multi_latent_attention

    multi_latent_attention.HAVE_TE = False

    build = dot_product_attention.DotProductAttention.__init__

    def widths_unsaid(self: object, *args: object, k_channels: int = 0, v_channels: int = 0, **kwargs: object) -> None:
        build(self, *args, **kwargs)  # the local one has no widths of latent attention, and no parameters from them

    dot_product_attention.DotProductAttention.__init__ = widths_unsaid
    for name in ("permute", "permute_with_probs", "sort_chunks_by_index", "sort_chunks_by_index_with_probs", "unpermute",
                 "topk_with_score_function", "compute_score_for_moe_aux_loss", "moe_aux_loss"):
        setattr(moe_utils, f"fused_{name}", lambda *_: None)


SET: list[str] = []
"""Variables of the case that was judged last."""


def judge(case: dict[str, typing.Any]) -> tuple[str, list[int]]:
    """The reason for refusing a command line, or the empty string; and the parameters of the ranks asked for."""
    from megatron.core import num_microbatches_calculator as calculator
    from megatron.training import arguments

    os.environ.update({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(case["world"])})
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS", *SET):  # what the case before has left
        os.environ.pop(name, None)
    SET[:] = case["env"]
    os.environ.update(case["env"])
    sys.argv = ["pretrain_gpt.py", *case["argv"]]
    sink = io.StringIO()
    try:
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            args = arguments.parse_args()
            arguments.validate_args(args, {})
            calculator.unset_num_microbatches_calculator()
            calculator.init_num_microbatches_calculator(
                args.rank, args.rampup_batch_size, args.global_batch_size, args.micro_batch_size,
                args.data_parallel_size, False,
            )
            config = arguments.core_transformer_config_from_args(args)
    except SystemExit:
        return sink.getvalue().strip().splitlines()[-1], []
    except Exception as error:
        return f"{type(error).__name__}: {error}", []
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
        return "", [count(args, config, rank) for rank in case.get("ranks", ())]


def judge_core(case: dict[str, typing.Any]) -> tuple[str, list[int]]:
    """As ``judge``, with the configuration classes alone."""
    import torch
    from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig

    given: dict[str, list[str]] = {}
    for word in case["argv"]:
        if word.startswith("--"):
            given[word[2:].replace("-", "_")] = values = []
        else:
            values.append(word)
    latent = "multi_latent_attention" in given
    kind = MLATransformerConfig if latent else TransformerConfig
    fields = {field.name for field in dataclasses.fields(kind)}
    fixed = {
        "add_bias_linear": "disable_bias_linear" not in given, "gated_linear_unit": "swiglu" in given or "quick_geglu" in given,
        "activation_func": torch.nn.functional.silu if "swiglu" in given else torch.nn.functional.gelu,
        "num_moe_experts": _value(given.get("num_experts", ["None"])), "pipeline_dtype": torch.bfloat16,
        "virtual_pipeline_model_parallel_size": _value(given.get("num_virtual_stages_per_pipeline_rank", ["None"])),
        "window_size": _value([f"({word})" for word in given.get("window_size", ["None"])]),
        "layernorm_epsilon": _value(given["norm_epsilon"]),
    }
    if latent:
        fixed["q_lora_rank"] = _value(given.get("q_lora_rank", ["None"]))
    try:
        if "pipeline_model_parallel_layout" in given:
            text, stages = given["pipeline_model_parallel_layout"][0], _value(given["pipeline_model_parallel_size"])
            places = PipelineParallelLayerLayout.get_num_stages_from_str(text)
            fixed["virtual_pipeline_model_parallel_size"] = places // stages if places > stages else None
        read = {name: _value(words) for name, words in given.items() if name in fields - set(fixed) - _NOT_FIELDS}
        config = kind(**read, **fixed)
    except Exception as error:
        return f"{type(error).__name__}: {error}", []
    args = SimpleNamespace(
        **{name: _value(words) for name, words in given.items()}
        | {"virtual_pipeline_model_parallel_size": fixed["virtual_pipeline_model_parallel_size"], "world_size": case["world"]}
    )
    for name, value in {"qk_l2_norm": False, "mtp_num_layers": None, "untie_embeddings_and_output_weights": False,
                        "expert_model_parallel_size": 1, "expert_tensor_parallel_size": 1}.items():
        if not hasattr(args, name):
            setattr(args, name, value)
    return "", [count(args, config, rank) for rank in case.get("ranks", ())]


_NOT_FIELDS = {"moe_permute_fusion", "tp_comm_overlap", "fp8_format", "attention_backend", "cp_comm_type"}


def _value(words: list[str]) -> typing.Any:
    """A number, a list expression, True for a switch, or the word itself."""
    if len(words) != 1:
        return words or True
    try:
        return eval(words[0], {"__builtins__": {}})  # the list expressions of Megatron-LM are Python
    except Exception:
        return words[0]


def once(build: Callable[..., typing.Any]) -> Callable[..., typing.Any]:
    """Layers and experts of the same arguments are built once; the others are shallow copies that know their number."""
    first: dict[tuple[int, ...], tuple[typing.Any, ...]] = {}

    def built(*args: typing.Any, layer_number: int | None = None, **kwargs: typing.Any) -> typing.Any:
        numbered = {} if layer_number is None else {"layer_number": layer_number}
        key = tuple(map(id, (*args, *kwargs.values())))
        if key not in first:
            first[key] = (build(*args, **kwargs, **numbered), layer_number, args, kwargs)  # kept, so that no id comes again
        module, number, *_ = first[key]
        twin = copy.copy(module)
        if layer_number is not None:
            twin.layer_number = module.layer_number + layer_number - number
        return twin

    return built


def count(args: typing.Any, config: typing.Any, rank: int) -> int:
    """Parameters of one rank, all its model chunks together."""
    import torch
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.transformer import transformer_block
    from megatron.core.transformer.moe import experts
    from torch.testing._internal.distributed.fake_pg import FakeStore

    GPTModel.setup_embeddings_and_output_layer = lambda self: None  # synchronises copies of the embedding
    torch.cuda.current_device = lambda: torch.device("meta")  # type: ignore[assignment, return-value]
    torch.cuda.Stream = torch.cuda.Event = lambda *_, **__: None  # type: ignore[assignment, misc]
    torch.distributed.destroy_process_group()
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=args.world_size)
    chunks = args.virtual_pipeline_model_parallel_size
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size, chunks,
        context_parallel_size=args.context_parallel_size, expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size, create_gloo_process_groups=False,
    )
    config.sequence_parallel = config.moe_grouped_gemm = config.perform_initialization = False
    config.persist_layer_norm = config.gradient_accumulation_fusion = config.tp_comm_overlap = False
    config.moe_permute_fusion, config.use_cpu_initialization = False, True  # the latter for tables of yarn
    config.transformer_impl, config.init_model_with_meta_device = "local", True
    multiple = args.make_vocab_size_divisible_by * args.tensor_model_parallel_size
    vocabulary = -(-(args.vocab_size + 1) // multiple) * multiple  # NullTokenizer: one more than it is told
    total = 0
    try:
        if getattr(args, "hybrid_override_pattern", None):
            return hybrid(args, config, vocabulary)
        for chunk in range(chunks or 1):
            stage = {"ignore_virtual": False, "vp_stage": chunk if chunks else None}
            with torch.device("meta"):
                spec = get_gpt_decoder_block_spec(
                    config, use_transformer_engine=False, normalization=args.normalization,
                    qk_l2_norm=args.qk_l2_norm, vp_stage=stage["vp_stage"],
                )
                mtp = None
                if args.mtp_num_layers:
                    mtp = get_gpt_mtp_block_spec(
                        config, spec.layer_specs[-1], use_transformer_engine=False, vp_stage=stage["vp_stage"]
                    )
                with (
                    mock.patch.object(transformer_block, "build_module", once(transformer_block.build_module)),
                    mock.patch.object(experts, "MLP", once(experts.MLP)),
                ):
                    model = GPTModel(
                        config, spec, vocabulary, args.max_position_embeddings,
                        pre_process=parallel_state.is_pipeline_first_stage(**stage),
                        post_process=parallel_state.is_pipeline_last_stage(**stage),
                        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                        position_embedding_type=args.position_embedding_type, mtp_block_spec=mtp,
                        vp_stage=stage["vp_stage"],
                    )
            total += sum(parameter.numel() for _, parameter in model.named_parameters(remove_duplicate=False))
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    return total


def hybrid(args: typing.Any, config: typing.Any, vocabulary: int) -> int:
    """Parameters of one rank of a hybrid with Mamba-2: local layers, each with the norm that those of Transformer Engine fuse."""
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:  # kernels of generation, which nothing here runs
        sys.modules.update({name: mock.MagicMock() for name in ("triton", "triton.language", "triton.runtime")})
    import torch
    from megatron.core import parallel_state
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.models.mamba import MambaModel
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.ssm import mamba_block, mamba_context_parallel, mamba_mixer
    from megatron.core.ssm.mamba_layer import MambaLayer, MambaLayerSubmodules
    from megatron.core.ssm.mlp_layer import MLPLayer
    from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer import transformer_layer as layers
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    class Norm(torch.nn.Module):
        """The gated norm of mamba-ssm, as far as its weights go."""

        def __init__(self, width: int, **_: object) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(width))

    mamba_mixer.HAVE_MAMBA_SSM = mamba_mixer.HAVE_EINOPS = mamba_context_parallel.HAVE_EINOPS = True
    mamba_mixer.ExtendedRMSNorm, mamba_mixer.RMSNormGated, mamba_block.TENorm = Norm, Norm, WrappedTorchNorm
    mamba_mixer.get_cuda_rng_tracker = lambda: SimpleNamespace(fork=contextlib.nullcontext)
    MambaModel.setup_embeddings_and_output_layer = lambda self: None  # synchronises copies of the embedding
    columns, rows = ColumnParallelLinear, RowParallelLinear
    mixer = ModuleSpec(module=mamba_mixer.MambaMixer, submodules=mamba_mixer.MambaMixerSubmodules(in_proj=columns, out_proj=rows))
    attention = ModuleSpec(
        module=SelfAttention, params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(linear_qkv=columns, core_attention=DotProductAttention, linear_proj=rows),
    )
    block = ModuleSpec(module=MLP, submodules=MLPSubmodules(linear_fc1=columns, linear_fc2=rows))
    experts = get_moe_module_spec(use_te=False, num_experts=config.num_moe_experts or 1, moe_grouped_gemm=False)
    spec = ModuleSpec(module=mamba_block.MambaStack, submodules=mamba_block.MambaStackSubmodules(
        mamba_layer=ModuleSpec(module=MambaLayer, submodules=MambaLayerSubmodules(
            norm=WrappedTorchNorm, mixer=mixer, mamba_bda=get_bias_dropout_add)),
        attention_layer=ModuleSpec(module=layers.TransformerLayer, submodules=layers.TransformerLayerSubmodules(
            input_layernorm=WrappedTorchNorm, self_attention=attention, self_attn_bda=get_bias_dropout_add)),
        mlp_layer=ModuleSpec(module=MLPLayer, submodules=layers.TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp=block, mlp_bda=get_bias_dropout_add)),
        moe_layer=ModuleSpec(module=layers.TransformerLayer, submodules=layers.TransformerLayerSubmodules(
            pre_mlp_layernorm=WrappedTorchNorm, mlp=experts, mlp_bda=get_bias_dropout_add)),
    ))
    with torch.device("meta"):
        model = MambaModel(
            config, spec, vocabulary, args.max_position_embeddings, hybrid_override_pattern=args.hybrid_override_pattern,
            pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage(),
            share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
            position_embedding_type=args.position_embedding_type,
            pg_collection=ProcessGroupCollection.use_mpu_process_groups(),
        )
    return sum(parameter.numel() for _, parameter in model.named_parameters(remove_duplicate=False))


if __name__ == "__main__":
    source = sys.argv[1] if len(sys.argv) > 1 else ""
    verdicts, sys.stdout = sys.stdout, sys.stderr  # Megatron-LM prints while it is imported
    prepare(source)
    judged = judge if source else judge_core
    for line in sys.stdin:
        why, parameters = judged(json.loads(line))
        print(json.dumps({"accepted": not why, "why": why, "parameters": parameters}), file=verdicts, flush=True)
