"""The arguments that a log of Megatron-LM prints before it trains, as the script that would give them."""

from __future__ import annotations

from collections.abc import Mapping

from meshwright.documents.quoting import command
from meshwright.documents.source import File
from meshwright.frameworks.megatron.flags import surface
from meshwright.frameworks.megatron.hybrid import PATTERNS

OFF = frozenset({"none", "false", ""})
NEEDED = ("num_layers", "hidden_size", "tensor_model_parallel_size")
"""What every dump of a training has."""
DERIVED = frozenset(
    {
        "virtual_pipeline_model_parallel_size",
        "padded_vocab_size",
        "data_parallel_size",
        "consumed_train_samples",
        "consumed_valid_samples",
        "params_dtype",
        "world_size",
        "rank",
        "local_rank",
        "transformer_pipeline_model_parallel_size",
    }
)
"""Values that the program worked out of others."""


def logged(settings: Mapping[str, str], name: str) -> tuple[File, ...]:
    """A launch script with every argument of the dump that is switched on and that some release knows.

    A dump spells the attribute, not the flag: ``no_x`` flags stand as ``x`` and are not told from those that were never given.
    """
    if not all(each in settings for each in NEEDED):
        return ()
    known, words = surface(), ["torchrun"]
    if (world := settings.get("world_size", "")).isdigit():
        words += ["--nproc_per_node", world]
    words.append("pretrain_gpt.py")
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        if value.strip().lower() in OFF or key in DERIVED or flag not in known.keys:
            continue
        words += [flag] if value.strip() == "True" else [flag, *_values(value, known.keys[flag][-1].kind)]
    words += _vocabulary(settings)
    virtual, layers = settings.get("virtual_pipeline_model_parallel_size", ""), settings["num_layers"]
    staged = any(each in words for each in PATTERNS)  # the pattern of a hybrid says its stages
    if virtual.isdigit() and int(virtual) > 1 and layers.isdigit() and not staged:
        chunk = int(layers) // int(virtual) // int(settings.get("pipeline_model_parallel_size", "1"))
        words += (
            ["--num-layers-per-virtual-pipeline-stage", str(chunk)]
            if "--num-layers-per-virtual-pipeline-stage" not in words
            else []
        )
    return (File(path=f"{name} (its arguments).sh", text=command(*words) + "\n"),)


def _vocabulary(settings: Mapping[str, str]) -> list[str]:
    """The vocabulary as it was padded, where the dump has no other: the NullTokenizer adds a token to what it is told."""
    padded = settings.get("padded_vocab_size", "").strip()
    if not padded.isdecimal() or settings.get("vocab_size", "").strip().lower() not in OFF:
        return []
    return ["--vocab-size", str(int(padded) - (settings.get("tokenizer_type") == "NullTokenizer"))]


def _values(value: str, kind: str) -> list[str]:
    """The words of a value: a list as Python prints it is several, or one word where the flag takes an expression."""
    text = value.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [text]
    if kind == "str":
        return [text.replace(" ", "")]
    return [each.strip().strip("'\"") for each in text[1:-1].split(",") if each.strip()]
