"""A program beside the launch, where ``run_recipe`` cannot say the plan: no recipe for the model, the rank of adapters, gradients
of another type, a chosen attention kernel. Its words are overrides, as those of ``run_recipe``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from meshwright.documents.quoting import Written, comment, python
from meshwright.frameworks.base import File
from meshwright.frameworks.bridge.adapters import modules_of
from meshwright.frameworks.bridge.automatic import built, imports, is_automatic
from meshwright.frameworks.bridge.images import mocked
from meshwright.frameworks.bridge.model_fields import VARIANT_SPEC, model_fields, module, provider
from meshwright.frameworks.bridge.recipes import MODES, recipe_of
from meshwright.frameworks.megatron.precision_arguments import BACKENDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from meshwright.domain.case import Case

PATH = "train.py"
HALF_GRADIENTS = frozenset({"fp16"})
"""Precisions whose recipe of Bridge reduces gradients in the type of the weights; the others in FP32."""


def reason(case: Case, release: str) -> str:
    """Why ``run_recipe`` alone does not do, or the empty string."""
    why = []
    if recipe_of(case, release) is None:
        why.append(f"Megatron-Bridge {release} has no {MODES[case.training.task]} recipe for this model")
    if case.training.lora:
        why.append("the rank of adapters cannot be set on a command line")
    if _reduces_otherwise(case):
        why.append("the type in which gradients are reduced is not the recipe's")
    if case.implementation.kernel:
        why.append("the attention kernel is a member of AttnBackend, which no word of a command line becomes")
    return "; ".join(why)


def program(case: Case, release: str) -> File:
    """``train.py``."""
    recipe, task = recipe_of(case, release), case.training.task
    trainer = "pretrain" if task == "pretrain" else "finetune"
    start = recipe.function(task) if recipe else f"_{MODES[task]}_common"
    imports = [
        *(() if recipe else _imports(case, release)), f"from megatron.bridge.recipes{'' if recipe else '.common'} import {start}",
        f"from megatron.bridge.training.{'vlm' if case.model.tower else 'gpt'}_step import forward_step",
        f"from megatron.bridge.training.{trainer} import {trainer}",
        "from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides",
    ]
    if case.implementation.kernel:
        imports.append("from megatron.core.transformer.enums import AttnBackend")
    if _reduces_otherwise(case):
        imports.append("from megatron.bridge.training.mixed_precision import get_mixed_precision_config")
    lines = [
        f"# {comment(case.model.name)} for Megatron-Bridge {release}. Written by Meshwright.", f"# {reason(case, release)}.",
        "# Words are overrides, as those of run_recipe.", "", "import sys", "", *sorted(imports), "", "",
        "def configuration():", f"    config = {start}()",
        *(() if recipe else _model(case, release)), *_kernel(case), *_adapters(case), "    return config", "", "",
        "def overridden(words):", "    trained = process_config_with_overrides(configuration(), cli_overrides=words)",
        *(_reduced(case) if _reduces_otherwise(case) else ()), "    return trained", "", "",
        'if __name__ == "__main__":', f"    {trainer}(config=overridden(sys.argv[1:]), forward_step_func=forward_step)",
    ]
    return File(path=PATH, text="\n".join(lines) + "\n")


REDUCED = re.compile(
    r"^ +(\w+)\.mixed_precision = get_mixed_precision_config\(\1\.mixed_precision\)\n"
    r" +\1\.mixed_precision\.grad_reduce_in_fp32 = (True|False)$", re.MULTILINE,
)
"""What ``program`` writes behind the overrides: the recipe for the precision by its name, with gradients in another type."""


def _reduced(case: Case) -> Iterator[str]:
    """The type in which gradients are reduced, over the recipe for the precision."""
    yield "    trained.mixed_precision = get_mixed_precision_config(trained.mixed_precision)"
    yield f"    trained.mixed_precision.grad_reduce_in_fp32 = {case.training.precision.gradient_bytes >= 4}"


def _reduces_otherwise(case: Case) -> bool:
    """Whether gradients are planned in another type than Bridge's recipe for the precision reduces them in."""
    precision = case.training.precision
    return (precision.gradient_bytes < 4) != (precision.name in HALF_GRADIENTS)


def _imports(case: Case, release: str) -> Iterator[str]:
    """What the model's fields name."""
    if is_automatic(case.model, release):
        yield from imports()
        if case.model.tower is not None:
            yield "from megatron.bridge.data.builders import MockVLMSFTDatasetConfig"
        return
    named = [str(value) for value in model_fields(case, release).values() if isinstance(value, Written)]
    if any(name.startswith("partial") for name in named):
        yield from ("from functools import partial",
                    "from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec")
    if VARIANT_SPEC in named:
        yield f"from megatron.core.models.gpt.experimental_attention_variant_module_specs import {VARIANT_SPEC}"
    yield from (f"from megatron.core.activations import {name}" for name in named if name in {"squared_relu", "quick_gelu"})
    yield f"from {module(case, release)} import {provider(case, release)}"
    if any(name.startswith("functional.") for name in named):
        yield "from torch.nn import functional"


def _model(case: Case, release: str) -> Iterator[str]:
    """The model, and its tokenizer: none where data are made up."""
    if is_automatic(case.model, release):
        yield from built(case.model)
    else:
        yield f"    config.model = {provider(case, release)}("
        for name, value in model_fields(case, release).items():
            yield f"        {name}={value if isinstance(value, Written) else python(value)},"
        yield "    )"
    if case.training.task == "pretrain":
        yield '    config.tokenizer.tokenizer_type = "NullTokenizer"'
        yield f"    config.tokenizer.vocab_size = {case.model.vocabulary}"
    if case.model.tower is not None:
        yield from mocked(case)


def _kernel(case: Case) -> Iterator[str]:
    """The attention kernel, where one is chosen."""
    if kernel := case.implementation.kernel:
        yield f"    config.model.attention_backend = AttnBackend.{BACKENDS[kernel]}"


def _adapters(case: Case) -> Iterator[str]:
    """Rank and places of the adapters."""
    if lora := case.training.lora:
        yield f"    config.peft.dim = {lora.rank}"
        yield f"    config.peft.target_modules = {python(modules_of(lora, case.model))}"
