"""The configuration that torchtitan prints where ``print_config`` is on, as the TOML that would give it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.documents.source import File
from meshwright.frameworks.surface import Surface
from meshwright.readers.logs.config_dump import document_of


def logged(settings: Mapping[str, str], name: str, surface: Surface) -> tuple[File, ...]:
    """A TOML with every key of the dump that some release knows and that has a value; none where no configuration was printed.

    Source:  torchtitan ``JobConfig.maybe_log``: "Running with configs: " and the JSON of the whole configuration.
    """
    config = document_of(settings, "torchtitan")
    if config is None:
        return ()
    import tomlkit  # which only who writes TOML needs

    sections: dict[str, dict[str, Any]] = {}
    for section, keys in config.items():
        for key, value in keys.items() if isinstance(keys, dict) else ():
            if f"{section}.{key}" in surface.keys and value is not None and value != {}:
                sections.setdefault(section, {})[key] = value
    return (File(path=f"{name} (its configuration).toml", text=tomlkit.dumps(sections)),) if sections else ()
