"""What MindSpeed-Core-MS r0.1.0 takes although it is wrong: keys that nothing reads, lists that do not fit, the launch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.ascend.environment import environment_checks
from meshwright.frameworks.ascend.habits import deterministic, whole_states
from meshwright.frameworks.ascend.recompute_lists import LISTS
from meshwright.frameworks.ascend.stages import MAX_PLACES, lists_of, shape_of
from meshwright.frameworks.asking import at
from meshwright.frameworks.mindspeed_core_ms.reading import LIST_SPELLINGS, SPELLINGS
from meshwright.frameworks.rules import file_rule

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


def file_checks(prefix: str) -> tuple[Check, ...]:
    """Checks of the YAML surface, with identifiers of one framework."""
    checks: list[Check] = []
    add = partial(file_rule, checks)

    @add(f"{prefix}.dead-key", "{key} has no effect: {why}", severity="error",
         source="mindspeed_ms/core/config.py BaseConfig.update_attrs: unknown keys are stored, never read; "
                "parallel_state.py: the argument only logs \"not used\"")
    def _dead(reading: Reading, case: Case | None) -> Iterator[Values]:
        for key, setting in reading.source.settings.items():
            name = key.rpartition(".")[2]
            if name not in DEAD or key.startswith("-"):
                continue
            if name == "num_layers_per_virtual_pipeline_stage" and _is_one(reading):
                continue
            yield at(setting, None, key=key, why=DEAD[name])

    @add(f"{prefix}.prose-list", "{key} is a name of the guide, not a key: {fate}", severity="error",
         source="guide 002:179; mindspeed_ms/core/config.py validate_recompute_config")
    def _prose(reading: Reading, case: Case | None) -> Iterator[Values]:
        for key, setting in reading.source.settings.items():
            section, _, name = key.rpartition(".")
            if name in PROSE:
                inside = section.endswith("recompute_config")
                fate = f"Key '{name}' is not supported in recompute_config." if inside else "it is kept without effect"
                yield {"key": key, "fate": fate, "value": setting.value, "path": setting.place,
                       "expected": f"parallel_config.recompute_config.{PROSE[name]}"}

    @add(
        f"{prefix}.list-text",
        "malformed node or string: {value}; {key} is read as the text of a list",
        source="mindspeed_ms/core/config.py ModelParallelConfig",
    )
    def _text(reading: Reading, case: Case | None) -> Iterator[Values]:
        for name in LISTS:
            setting = reading.source.settings.get(f"parallel_config.{name}")
            if setting and isinstance(setting.value, (list, tuple)):
                yield {"key": setting.key, "value": setting.value, "expected": f'"{list(setting.value)}"', "path": setting.place}

    @add(
        f"{prefix}.list-kind",
        "Key '{key}' should be list in recompute_config.",
        source="mindspeed_ms/core/config.py validate_recompute_config",
    )
    def _kind(reading: Reading, case: Case | None) -> Iterator[Values]:
        for name in LISTS:
            setting = reading.source.settings.get(f"parallel_config.recompute_config.{name}")
            if setting and setting.value and not isinstance(setting.value, list):
                yield at(setting, "a list", key=name)

    @add(f"{prefix}.list-sum",
         "Recompute layers must less or equal num layers, but got {name}_layers {part} + "
         "full_recompute_layers {full} > num_layers {layers}.",
         source="mindspeed_ms/legacy/model/transformer.py _get_recompute_nums")
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
                    yield {"name": name, "part": part, "full": whole, "layers": layers, "value": part + whole, "expected": layers,
                           "path": lists[name][1].place}
                    break

    @add(f"{prefix}.list-shape", "The shape of {key} {shape} must equal to pp_layout {layout}",
         source="mindspeed_ms/legacy/model/transformer.py _get_recompute_nums, _get_custom_num_layers")
    def _shape(reading: Reading, case: Case | None) -> Iterator[Values]:
        stages, chunks = _degree(reading, "pp"), _degree(reading, "vp")
        wanted = (chunks, stages) if stages > 1 and chunks > 1 else (1, stages)
        for name, (lists, setting) in _lists(reading).items():
            shape = shape_of(lists)
            if shape != wanted:
                yield at(setting, None, key=name, shape=shape, layout=wanted)

    @add(f"{prefix}.square-list", "{key} is square ({n} x {n}): [virtual stage][stage] here, the transpose in br_master; the "
                                  "wrong one is not noticed",
         severity="advice", source="mindspeed_ms of r0.1.0 and of br_master, transformer.py")
    def _square(reading: Reading, case: Case | None) -> Iterator[Values]:
        layers = _first(reading, SPELLINGS["layers"])
        split = lists_of(layers.value) if layers else None
        named = {**({"num_layer_list": (split, layers)} if split and layers else {}), **_lists(reading)}
        for name, (lists, setting) in named.items():
            shape = shape_of(lists)
            if shape and shape[0] == shape[1] > 1 and tuple(zip(*lists, strict=True)) != lists:
                yield at(setting, None, key=name, n=shape[0])

    @add(f"{prefix}.layer-sum", "The number of model layers is {layers}, but the sum of num_layer_list  {value} is {total}.",
         source="mindspeed_ms/legacy/model/transformer.py _get_num_layers")
    def _layer_sum(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = _first(reading, SPELLINGS["layers"])
        lists = lists_of(setting.value) if setting else None
        layers = reading.source.value("model_config.num_layers") or (case.model.num_layers if case else None)
        if setting and lists and isinstance(layers, int) and sum(map(sum, lists)) != layers:
            yield at(setting, layers, layers=layers, total=sum(map(sum, lists)))

    @add(
        f"{prefix}.select-mlp",
        "select_recompute with flash attention recomputes the MLP's activation function, and only if it is a Cell; {act} is {fate}",
        severity="advice",
        source="mindspeed_ms/legacy/model/transformer.py _set_selective_recompute; guide 002:181",
    )
    def _select(reading: Reading, case: Case | None) -> Iterator[Values]:
        found = _lists(reading).get("select_recompute")
        if found and reading.source.value("model_config.use_flash_attention") is True:
            fused = reading.source.value("model_config.apply_swiglu_fusion") is True
            act = str(reading.source.value("model_config.hidden_act", "gelu"))
            yield {"act": act, "fate": "fused, so check that it still is one" if fused else "not fused", "value": found[1].value,
                   "path": found[1].place}

    @add(
        f"{prefix}.unwrapped-optimizer",
        "For training config, {key} only take effect when `wrap_with_ddp=True`",
        severity="warning",
        source="mindspeed_ms/core/config.py TrainingConfig validators: set to False with a warning",
    )
    def _unwrapped(reading: Reading, case: Case | None) -> Iterator[Values]:
        if reading.source.value("training_config.wrap_with_ddp") is True:
            return
        for name in ("use_distributed_optimizer", "overlap_grad_reduce", "check_for_nan_in_grad"):
            setting = reading.source.settings.get(f"training_config.{name}")
            if setting and setting.value is True:
                yield at(setting, "wrap_with_ddp: true", key=name)

    @add(
        f"{prefix}.bucket",
        "bucket_size can only be set when `wrap_with_ddp=True`.",
        source="mindspeed_ms/core/config.py validate_bucket_size",
    )
    def _bucket(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("training_config.bucket_size")
        if setting and setting.value is not None and reading.source.value("training_config.wrap_with_ddp") is not True:
            yield at(setting, "wrap_with_ddp: true")

    @add(f"{prefix}.parallel-overlap", "parallel_config.overlap_grad_reduce has no effect: the DDP wrapper reads "
                                       "training_config.overlap_grad_reduce",
         severity="warning", source="mindspeed_ms/training/training.py get_model")
    def _overlap(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("parallel_config.overlap_grad_reduce")
        if setting and setting.value is True and reading.source.value("training_config.overlap_grad_reduce") is not True:
            yield at(setting, "training_config.overlap_grad_reduce: true")

    @add(
        f"{prefix}.positions",
        "position_embedding_type {value} gives no positions: the model knows rope and learned_absolute",
        severity="error",
        source="mindspeed_ms/legacy/model/language_model.py: the default 'absolute' matches neither",
    )
    def _positions(reading: Reading, case: Case | None) -> Iterator[Values]:
        if (
            not any(key.startswith("model_config.") for key in reading.source.settings)
            or "model_config.vocab_size" not in reading.source.settings
        ):
            return
        setting = reading.source.settings.get("model_config.position_embedding_type")
        value = setting.value if setting else "absolute"
        if value not in ("rope", "learned_absolute"):
            yield at(setting, "rope", value=value)

    @add(f"{prefix}.residual", "'fp32_residual_connection=True' is not supported for now.", source="mindspeed_ms/core/config.py")
    def _residual(reading: Reading, case: Case | None) -> Iterator[Values]:
        setting = reading.source.settings.get("model_config.fp32_residual_connection")
        if setting and setting.value is True:
            yield at(setting, False)

    return (
        *checks, deterministic(prefix, "parallel_config.deterministic_mode"), whole_states(prefix, "use_distributed_optimizer"),
        *environment_checks(prefix, mindspore=True),
    )


def _is_one(reading: Reading) -> bool:
    """Whether interleaving is configured by the key that is read."""
    return _degree(reading, "vp") > 1


def _first(reading: Reading, keys: tuple[str, ...]) -> Setting | None:
    """The first of some keys that is set."""
    found = (reading.source.settings.get(key) for key in keys)
    return next((setting for setting in found if setting is not None and setting.value is not None), None)


def _degree(reading: Reading, name: str) -> int:
    """A degree under any of its spellings; 1 where it is absent or odd."""
    setting = _first(reading, SPELLINGS[name])
    return setting.value if setting and type(setting.value) is int and setting.value > 0 else 1


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

    setting = _first(reading, SPELLINGS["layers"])
    if setting:
        return lists_of(setting.value)
    layers, pp, vp = reading.source.value("model_config.num_layers"), _degree(reading, "pp"), _degree(reading, "vp")
    return own_split(layers, pp, vp) if type(layers) is int and pp * vp <= min(layers, MAX_PLACES) else None
