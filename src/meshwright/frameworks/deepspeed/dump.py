"""What a log of DeepSpeed prints of its configuration, as the JSON that it was given, and the launch beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from meshwright.documents.quoting import command
from meshwright.documents.source import File
from meshwright.frameworks.surface import Surface

CHECKPOINTING = "--gradient_checkpointing"


def logged(settings: Mapping[str, str], name: str, surface: Surface) -> tuple[File, ...]:
    """The JSON, and a launch with the arguments of the Trainer that say what it leaves open; none where no JSON was printed.

    Transformers before 4.10 keep recomputation in the model's configuration, later ones in the arguments.
    """
    from meshwright.readers.logs.config_dump import document_of  # the readers of logs: not where a launch is read

    config = document_of(settings, "deepspeed")
    if config is None:
        return ()
    arguments = document_of(settings, "training_arguments") or {}
    model = document_of(settings, "model_config") or {}
    words: dict[str, Any] = {f"--{key}": value for key, value in arguments.items() if f"--{key}" in surface.keys}
    if model.get("gradient_checkpointing") is True:
        words.setdefault(CHECKPOINTING, True)
    flags = [word for key, value in words.items() if value not in (None, False, "")
             for word in ((key,) if value is True else (key, str(value)))]
    path = f"{name} (its configuration).json"
    words_of_launch = ("deepspeed", "train.py", *(word for word in flags if word != "--deepspeed"), "--deepspeed", path)
    return (
        File(path=path, text=json.dumps(config, indent=2) + "\n"),
        File(path=f"{name} (its arguments).sh", text=command(*words_of_launch) + "\n"),
    )
