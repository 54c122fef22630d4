"""What MindSpeed-Core-MS r0.1.0 takes although it is wrong: keys that nothing reads, lists that do not fit, the launch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_mistakes
from meshwright.frameworks.ascend.habits import deterministic, whole_states
from meshwright.frameworks.ascend.recompute_lists import LISTS
from meshwright.frameworks.ascend.stages import MAX_PLACES, lists_of, shape_of
from meshwright.frameworks.asking import at, is_not_true, is_true, other_than
from meshwright.frameworks.keys import spellings
from meshwright.frameworks.mindspeed_core_ms.reading import LAYERS, LIST_SPELLINGS
from meshwright.frameworks.mindspeed_core_ms.writing import PARALLEL
from meshwright.frameworks.rules import At, Mistake, checks

if TYPE_CHECKING:
    from meshwright.documents.source import Setting
    from meshwright.domain.case import Case
    from meshwright.frameworks.ascend.stages import Split
    from meshwright.frameworks.base import Check, Values
    from meshwright.frameworks.settings import Reading, Severity

SECTIONS = (
    "parallel_config", "model_config", "training_config", "dataset_config", "optimizer_config", "moe_config", "lora_config",
)
PROSE = {
    "full_recompute_list": "recompute", "select_recompute_list": "select_recompute",
    "select_comm_recompute_list": "select_comm_recompute",
}
"""Names in the prose of the tuning guide (002) -> the keys that are read."""
DEAD = {
    "zero_shard_size": "nothing reads it: all data-parallel ranks share the states",
    "num_layers_per_virtual_pipeline_stage": "nothing reads it: set virtual_pipeline_model_parallel_size",
}
_DDP = "training_config.wrap_with_ddp"
READ_KEYWORDS = (
    "optimizer_config.betas", "optimizer_config.beta1", "optimizer_config.beta2", "optimizer_config.eps",
    "parallel_config.model_customize_staged",
)
"""Keys beyond the signatures that are passed on to what reads them."""


def unknown_key(key: str) -> tuple[Severity, str] | None:
    """Sections keep every key; other sections belong to the user's script, and so do flags of a launch."""
    section, dot, name = key.partition(".")
    if (
        key.startswith("-")
        or section not in SECTIONS
        or not dot
        or key in READ_KEYWORDS
        or name.partition(".")[0] in {*DEAD, *PROSE}
    ):
        return None
    if ".recompute_config." in f".{name}" or name.startswith("recompute_config."):
        return "error", "Key '{key}' is not supported in recompute_config."
    return "warning", "{key} is stored, and nothing reads it"


def _first(reading: Reading, keys: tuple[str, ...]) -> Setting | None:
    """The first of some keys that is set."""
    found = (reading.source.settings.get(key) for key in keys)
    return next((setting for setting in found if setting is not None and setting.value is not None), None)


def _degree(reading: Reading, knob: str) -> int:
    """A degree under any of its spellings; 1 where it is absent or odd."""
    setting = _first(reading, spellings(PARALLEL, knob))
    return setting.value if setting and type(setting.value) is int and setting.value > 0 else 1


def _stages(reading: Reading) -> tuple[int, int]:
    """Stages and chunks of each."""
    return _degree(reading, "pipeline_parallel"), _degree(reading, "virtual_stages")


def _lists(reading: Reading) -> dict[str, tuple[Split, Setting]]:
    """The recompute lists that are set, each with its setting."""
    found = {}
    for name in LISTS:
        setting = _first(reading, LIST_SPELLINGS[name])
        lists = lists_of(setting.value) if setting else None
        if setting and lists:
            found[name] = (lists, setting)
    return found


def _split(reading: Reading) -> Split | None:
    """The split of the files: their list, or what the framework makes of the number of layers."""
    from meshwright.frameworks.mindspeed_core_ms.writing import own_split

    setting = _first(reading, LAYERS)
    if setting:
        return lists_of(setting.value)
    layers, pp, vp = reading.source.value("model_config.num_layers"), *_stages(reading)
    return own_split(layers, pp, vp) if type(layers) is int and pp * vp <= min(layers, MAX_PLACES) else None


def _dead(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key, setting in reading.source.settings.items():
        name = key.rpartition(".")[2]
        if name not in DEAD or key.startswith("-"):
            continue
        if name == "num_layers_per_virtual_pipeline_stage" and _degree(reading, "virtual_stages") > 1:
            continue  # interleaving is configured by the key that is read
        yield at(setting, None, key=key, why=DEAD[name])


def _prose(reading: Reading, case: Case | None) -> Iterator[Values]:
    for key, setting in reading.source.settings.items():
        section, _, name = key.rpartition(".")
        if name in PROSE:
            inside = section.endswith("recompute_config")
            fate = f"Key '{name}' is not supported in recompute_config." if inside else "it is kept without effect"
            yield at(setting, f"parallel_config.recompute_config.{PROSE[name]}", key=key, fate=fate)


def _text(reading: Reading, case: Case | None) -> Iterator[Values]:
    for name in LISTS:
        setting = reading.source.settings.get(f"parallel_config.{name}")
        if setting and isinstance(setting.value, (list, tuple)):
            yield at(setting, f'"{list(setting.value)}"', key=setting.key)


def _is_no_list(value: object) -> bool:
    return bool(value) and not isinstance(value, list)


def _sum(reading: Reading, case: Case | None) -> Iterator[Values]:
    split, lists = _split(reading), _lists(reading)
    if split is None or "recompute" not in lists:
        return
    full, _ = lists["recompute"]
    for name in LISTS[1:]:
        if name not in lists or not shape_of(full) == shape_of(lists[name][0]) == shape_of(split):
            continue
        rows = zip(lists[name][0], full, split, strict=True)
        for part, whole, layers in (each for row in rows for each in zip(*row, strict=True)):
            if part + whole > layers:
                yield at(lists[name][1], layers, name=name, part=part, full=whole, layers=layers, value=part + whole)
                break


def _shape(reading: Reading, case: Case | None) -> Iterator[Values]:
    stages, chunks = _stages(reading)
    wanted = (chunks, stages) if stages > 1 and chunks > 1 else (1, stages)
    for name, (lists, setting) in _lists(reading).items():
        shape = shape_of(lists)
        if shape != wanted:
            yield at(setting, None, key=name, shape=shape, layout=wanted)


def _square(reading: Reading, case: Case | None) -> Iterator[Values]:
    layers = _first(reading, LAYERS)
    split = lists_of(layers.value) if layers else None
    named = {**({"num_layer_list": (split, layers)} if split and layers else {}), **_lists(reading)}
    for name, (lists, setting) in named.items():
        shape = shape_of(lists)
        if shape and shape[0] == shape[1] > 1 and tuple(zip(*lists, strict=True)) != lists:
            yield at(setting, None, key=name, n=shape[0])


def _layer_sum(reading: Reading, case: Case | None) -> Iterator[Values]:
    setting = _first(reading, LAYERS)
    lists = lists_of(setting.value) if setting else None
    layers = reading.source.value("model_config.num_layers") or (case.model.num_layers if case else None)
    if setting and lists and isinstance(layers, int) and sum(map(sum, lists)) != layers:
        yield at(setting, layers, layers=layers, total=sum(map(sum, lists)))


def _select(reading: Reading, case: Case | None) -> Iterator[Values]:
    found = _lists(reading).get("select_recompute")
    if found and reading.source.value("model_config.use_flash_attention") is True:
        fused = reading.source.value("model_config.apply_swiglu_fusion") is True
        act = str(reading.source.value("model_config.hidden_act", "gelu"))
        yield at(found[1], None, act=act, fate="fused, so check that it still is one" if fused else "not fused")


def _gathered(reading: Reading, case: Case | None) -> Iterator[Values]:
    found = _lists(reading).get("select_comm_recompute")
    on = _first(reading, spellings(PARALLEL, "sequence_parallel"))
    if found and any(map(any, found[0])) and (on is None or on.value is not True or _degree(reading, "tensor_parallel") == 1):
        yield at(found[1], None, key=found[1].key)


def _positions(reading: Reading, case: Case | None) -> Iterator[Values]:
    if "model_config.vocab_size" not in reading.source.settings:
        return
    setting = reading.source.settings.get("model_config.position_embedding_type")
    value = setting.value if setting else "absolute"
    if value not in ("rope", "learned_absolute"):
        yield at(setting, "rope", value=value)


_CONFIG, _LAYERS = "mindspeed_ms/core/config.py", "mindspeed_ms/legacy/model/transformer.py"
_WRAPPED = ("use_distributed_optimizer", "overlap_grad_reduce", "check_for_nan_in_grad")
_MISTAKES = (
    Mistake("dead-key", "{key} has no effect: {why}", _dead,
            source=f"{_CONFIG} BaseConfig.update_attrs: unknown keys are stored, never read; parallel_state.py: the argument only "
                "logs \"not used\""),
    Mistake("prose-list", "{key} is a name of the guide, not a key: {fate}", _prose,
            source=f"guide 002:179; {_CONFIG} validate_recompute_config"),
    Mistake("list-text", "malformed node or string: {value}; {key} is read as the text of a list", _text,
            source=f"{_CONFIG} ModelParallelConfig"),
    Mistake("list-kind", "Key '{key}' should be list in recompute_config.",
            tuple(At(f"parallel_config.recompute_config.{name}", "a list", _is_no_list, values={"key": name}) for name in LISTS),
            source=f"{_CONFIG} validate_recompute_config"),
    Mistake("list-sum", "Recompute layers must less or equal num layers, but got {name}_layers {part} + full_recompute_layers "
            "{full} > num_layers {layers}.", _sum, source=f"{_LAYERS} _get_recompute_nums"),
    Mistake("list-shape", "The shape of {key} {shape} must equal to pp_layout {layout}", _shape,
            source=f"{_LAYERS} _get_recompute_nums, _get_custom_num_layers"),
    Mistake("square-list", "{key} is square ({n} x {n}): [virtual stage][stage] here, the transpose in br_master; the wrong one is "
            "not noticed", _square, "advice", "mindspeed_ms of r0.1.0 and of br_master, transformer.py"),
    Mistake("layer-sum", "The number of model layers is {layers}, but the sum of num_layer_list  {value} is {total}.", _layer_sum,
            source=f"{_LAYERS} _get_num_layers"),
    Mistake("select-mlp", "select_recompute with flash attention recomputes the MLP's activation function, and only if it is a "
            "Cell; {act} is {fate}", _select, "advice", f"{_LAYERS} _set_selective_recompute; guide 002:181"),
    Mistake("select-comm", "{key} recomputes nothing: without sequence parallelism over tp no input is gathered", _gathered,
            "warning", "mindspeed_ms/core/tensor_parallel/layers.py: recompute_comm is of the gather of sequence parallelism"),
    Mistake("unwrapped-optimizer", "For training config, {key} only take effect when `wrap_with_ddp=True`",
            tuple(At(f"training_config.{name}", "wrap_with_ddp: true", is_true, beside={_DDP: is_not_true}, values={"key": name})
                  for name in _WRAPPED), "warning", f"{_CONFIG} TrainingConfig validators: set to False with a warning"),
    Mistake("bucket", "bucket_size can only be set when `wrap_with_ddp=True`.",
            At("training_config.bucket_size", "wrap_with_ddp: true", other_than(None), beside={_DDP: is_not_true}),
            source=f"{_CONFIG} validate_bucket_size"),
    Mistake("parallel-overlap", "parallel_config.overlap_grad_reduce has no effect: the DDP wrapper reads "
            "training_config.overlap_grad_reduce",
            At("parallel_config.overlap_grad_reduce", "training_config.overlap_grad_reduce: true", is_true,
               beside={"training_config.overlap_grad_reduce": is_not_true}), "warning", "mindspeed_ms/training/training.py "
            "get_model"),
    Mistake("positions", "position_embedding_type {value} gives no positions: the model knows rope and learned_absolute",
            _positions, source="mindspeed_ms/legacy/model/language_model.py: the default 'absolute' matches neither"),
    Mistake("residual", "'fp32_residual_connection=True' is not supported for now.",
            At("model_config.fp32_residual_connection", False, is_true), source=_CONFIG),
    deterministic("parallel_config.deterministic_mode"),
    whole_states("use_distributed_optimizer"),
    *environment_mistakes(mindspore=True),
)


def file_checks(prefix: str) -> tuple[Check, ...]:
    """Checks of the YAML surface, with identifiers of one framework."""
    return checks(prefix, _MISTAKES)
