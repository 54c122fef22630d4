"""What is wrong with the training engine of verl's files: its grid, its sections, what it takes and never reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.errors import did_you_mean
from meshwright.frameworks.asking import at, differs
from meshwright.frameworks.rules import Mistake
from meshwright.frameworks.verl.asking import Asked
from meshwright.frameworks.verl.batch_mistakes import asks
from meshwright.frameworks.verl.keys import ACTOR, MCORE, REFERENCE

if TYPE_CHECKING:
    from meshwright.frameworks.base import Values

_CONFIG = "verl/workers/config/engine.py"
_MEGATRON = "verl/workers/engine/megatron/transformer_impl.py"
_FSDP = "verl/workers/engine/fsdp/transformer_impl.py"


def _grid(asked: Asked) -> Iterator[Values]:
    tp, pp, cp = asked.degrees
    if asked.is_megatron and asked.world and asked.world % (tp * pp * cp):
        late = not asked.is_rl or bool(asked.dynamic)
        yield at(asked.setting(*(f"{asked.engine}.{name}_parallel_size" for name in ("tensor_model", "pipeline_model", "context"))),
                 f"degrees whose product divides {asked.world}", world=asked.world, parallel=tp * pp, cp=cp,
                 late=" (verl asks this without dynamic batches only: here Megatron-Core stops at the start)" if late else "")


def _experts(asked: Asked) -> Iterator[Values]:
    tp, pp, _ = asked.degrees
    ep = asked.count(f"{asked.engine}.expert_model_parallel_size", 1)
    etp = asked.count(f"{asked.engine}.expert_tensor_parallel_size", tp)
    if asked.is_megatron and asked.world and ep and etp and ep > 1 and asked.world % (ep * etp * pp):
        yield at(asked.setting(f"{asked.engine}.expert_model_parallel_size"), f"ranks that divide {asked.world // pp}",
                 world=asked.world, size=ep * etp * pp)


def _expert_tensor(asked: Asked) -> Iterator[Values]:
    tp, _, _ = asked.degrees
    ep = asked.count(f"{asked.engine}.expert_model_parallel_size", 1)
    key = f"{asked.engine}.expert_tensor_parallel_size"
    if asked.is_megatron and ep and ep > 1 and tp > 1 and asked.reading.source.value(key) is None:
        yield at(asked.setting(key, f"{asked.engine}.expert_model_parallel_size"), 1, value=None, tp=tp)


def _virtual(asked: Asked) -> Iterator[Values]:
    _, pp, _ = asked.degrees
    key = f"{asked.engine}.virtual_pipeline_model_parallel_size"
    chunks = asked.count(key, 1)
    if asked.is_megatron and chunks and chunks > 1 and pp == 1:
        yield at(asked.setting(key), None)


def _bridge(asked: Asked) -> Iterator[Values]:
    setting = asked.setting(f"{asked.engine}.use_mbridge")
    if asked.is_megatron and setting is not None and setting.value is False:
        yield at(setting, True)


def _strategy(asked: Asked) -> Iterator[Values]:
    setting, engine = asked.setting(f"{ACTOR}.strategy"), asked.reading.source.value("model_engine")
    if setting is not None and asked.is_megatron and engine == MCORE and setting.value != MCORE:
        yield at(setting, MCORE, engine=engine)


def _dynamic_context(asked: Asked) -> Iterator[Values]:
    key = f"{asked.engine}.max_seqlen_per_dp_cp_rank"
    switch = f"{asked.engine}.dynamic_context_parallel"
    if asked.is_megatron and asked.reading.source.value(switch) is True and not asked.count(key, 0):
        yield at(asked.setting(key, switch), "tokens", value=asked.reading.source.value(key))


def _misspelt(asked: Asked) -> Iterator[Values]:
    """Keys of the transformer's configuration that no release of it has."""
    from meshwright.frameworks.bridge import surface

    names = {key.removeprefix("model.") for key in surface().keys if key.startswith("model.")}
    prefix = f"{asked.engine}.override_transformer_config."
    for key, setting in asked.reading.source.settings.items():
        name = key.removeprefix(prefix)
        if asked.is_megatron and key.startswith(prefix) and "." not in name and name not in names and (
            hint := did_you_mean(name, names)
        ):
            yield at(setting, None, key=key, hint=hint)


def _connections(asked: Asked) -> Iterator[Values]:
    tp, _, cp = asked.degrees
    variable = asked.reading.source.environment.get("CUDA_DEVICE_MAX_CONNECTIONS")
    whole = asked.reading.source.value(f"{asked.engine}.use_megatron_fsdp") is True
    if asked.is_megatron and asked.reading.source.program and not whole and max(tp, cp) > 1 and differs(variable, "1"):
        yield at(variable, "1")


def _padding(asked: Asked) -> Iterator[Values]:
    model = "actor_rollout_ref.model" if asked.is_rl else "model"
    setting = asked.setting(f"{model}.use_remove_padding")
    if not asked.is_megatron and asked.degrees[2] > 1 and setting is not None and setting.value is False:
        old = (asked.count(f"{ACTOR}.ulysses_sequence_parallel_size", 1) or 1) > 1
        yield at(setting, True, late="" if old else " (verl asks this of the deprecated actor.ulysses_sequence_parallel_size "
                 "alone)")


def _reference(asked: Asked) -> Iterator[Values]:
    key, ulysses = f"{REFERENCE}.fsdp_config.ulysses_sequence_parallel_size", asked.degrees[2]
    own = max(asked.count(key, 1) or 1, asked.count(f"{REFERENCE}.ulysses_sequence_parallel_size", 1) or 1)
    if not asked.is_megatron and asked.has_reference and ulysses > 1 and own != ulysses:
        yield at(asked.setting(key, f"{asked.engine}.ulysses_sequence_parallel_size"), ulysses, value=own, ulysses=ulysses)


def _fsdp_size(asked: Asked) -> Iterator[Values]:
    key = f"{asked.engine}.fsdp_size"
    size = asked.count(key, 0)
    if not asked.is_megatron and asked.world and size and size < asked.world and asked.world % size:
        yield at(asked.setting(key), f"a divisor of {asked.world}", world=asked.world, groups=asked.world // size)


def _offload(asked: Asked) -> Iterator[Values]:
    if asked.is_megatron or asked.reading.source.value(f"{asked.engine}.offload_policy") is not True:
        return
    setting = asked.setting(f"{ACTOR}.strategy" if asked.is_rl else "engine.strategy")
    if setting is None or setting.value == "fsdp":
        yield at(asked.setting(f"{asked.engine}.offload_policy"), False,
                 words="nothing reads offload_policy with strategy fsdp: it is FSDP2's")
        return
    for name in ("param_offload", "optimizer_offload"):
        if (other := asked.setting(f"{asked.engine}.{name}")) is not None and other.value is True:
            yield at(other, False, words=f"{name} is switched off where offload_policy is on")


def _dead(asked: Asked) -> Iterator[Values]:
    for key, instead in (
        ("critic.ppo_max_token_len_per_gpu", "ppo_infer_max_token_len_per_gpu (32768, in no YAML) sets both caps of the critic"),
        ("critic.forward_max_token_len_per_gpu", "nothing reads it"),
    ):
        if (setting := asked.setting(key)) is not None and asked.reading.source.value("trainer.use_v1", True) is not False:
            yield at(setting, None, key=key, instead=instead)


def _balance(asked: Asked) -> Iterator[Values]:
    setting = asked.setting("trainer.balance_batch")
    if setting is not None and setting.value is False and asked.reading.source.value("trainer.use_v1", True) is not False:
        yield at(setting, None)


def _old_trainer(asked: Asked) -> Iterator[Values]:
    setting = asked.setting("trainer.use_v1")
    if setting is not None and setting.value is False:
        yield at(setting, True)


def engine_mistakes(section: str) -> tuple[Mistake, ...]:
    """Those of one back end."""
    return (
        Mistake("grid", "n_gpus ({world}) must be divisible by model_parallel_size ({parallel}) times context_parallel_size "
                "({cp}){late}", asks(section, _grid, tuning=True), source="verl/utils/config.py validate_config"),
        Mistake("expert-ranks", "world_size ({world}) is not divisible by expert_tensor_model_pipeline_parallel size ({size}): "
                "verl takes it, and Megatron-Core stops at the start", asks(section, _experts, tuning=True),
                source="megatron/core/parallel_state.py initialize_model_parallel"),
        Mistake("expert-tensor-parallel", "expert_tensor_parallel_size is not set, so experts are cut {tp} times, as the dense "
                "layers are", asks(section, _expert_tensor, tuning=True), "warning", f"{_CONFIG} McoreEngineConfig"),
        Mistake("virtual-stages", "When interleaved schedule is used, pipeline-model-parallel size should be greater than 1",
                asks(section, _virtual, tuning=True), source="megatron/core/parallel_state.py initialize_model_parallel"),
        Mistake("bridge", "use_mbridge must be True", asks(section, _bridge, tuning=True), source=_MEGATRON, releases=("0.10",)),
        Mistake("strategy", "strategy {value} beside model_engine {engine} is taken, and the batch is checked as if it were FSDP's",
                asks(section, _strategy), "warning", "verl/utils/config.py validate_config"),
        Mistake("dynamic-context", "max_seqlen_per_dp_cp_rank must be a positive integer when dynamic_context_parallel is enabled",
                asks(section, _dynamic_context, tuning=True), source=f"{_CONFIG} McoreEngineConfig.__post_init__",
                releases=("0.10",)),
        Mistake("misspelt", "{key} is taken unseen, and no field of the transformer's configuration is called so{hint}",
                asks(section, _misspelt, tuning=True), "warning", f"{_MEGATRON} _build_tf_config"),
        Mistake("connections", "CUDA_DEVICE_MAX_CONNECTIONS is {value}: Megatron-Core wants 1 for tensor and context parallelism",
                asks(section, _connections, tuning=True), "advice", "verl, the examples of its GRPO trainer for Megatron"),
        Mistake("remove-padding", "When using sequence parallelism for actor/ref policy, you must enable "
                "`use_remove_padding`.{late}", asks(section, _padding, tuning=True),
                source="verl/workers/config/actor.py FSDPActorConfig.validate"),
        Mistake("reference-ulysses", "the reference does not inherit ulysses_sequence_parallel_size: it cuts {value} times, the "
                "actor {ulysses}", asks(section, _reference), "warning", "verl/trainer/config/ref/dp_ref.yaml"),
        Mistake("fsdp-size", "fsdp_size {value} does not divide {world} GPUs: the mesh is rounded down to {groups} groups",
                asks(section, _fsdp_size, tuning=True), source="verl/workers/engine/fsdp/utils.py create_device_mesh"),
        Mistake("offload", "{words}", asks(section, _offload, tuning=True), "warning", f"{_FSDP} _build_fsdp_module"),
        Mistake("dead-cap", "{key} has no effect: {instead}", asks(section, _dead), "warning",
                "verl/trainer/ppo/v1/trainer_base.py", ("0.10",)),
        Mistake("balance", "trainer.balance_batch: false has no effect: this trainer always balances", asks(section, _balance),
                "warning", "verl/trainer/ppo/v1/trainer_base.py", ("0.10",)),
        Mistake("old-trainer", "trainer.use_v1: false is the trainer that verl takes out", asks(section, _old_trainer), "advice",
                "verl/trainer/main_ppo.py", ("0.10",)),
    )
