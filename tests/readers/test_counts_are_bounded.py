"""Whatever number a configuration states of anything: a model or one line, in little memory, in every architecture at hand."""

from __future__ import annotations

import copy
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from meshwright.catalog.sheets import data_path
from meshwright.errors import InputError
from meshwright.readers.hf_config import model_from_config
from meshwright.readers.shipped import load_shipped

MANY = 10**6
"""Of parts that are described one by one this takes megabytes, and the largest size that a file may state gigabytes."""
MOST_BYTES = 2 * 2**20
UNSAID = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "altup_num_inputs", "hc_mult")


def _configurations() -> dict[str, dict[str, Any]]:
    """A configuration of each architecture of which the catalogue keeps one."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(data_path("models").glob("*.yaml")):
        for model in load_shipped(path)["models"].values():
            config = model.get("config") if isinstance(model, Mapping) else None
            if config:
                found.setdefault(str(config.get("architectures") or config.get("model_type")), config)
    return found


CONFIGURATIONS = _configurations()


def _numbers(config: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield (*above, key)
        elif isinstance(value, Mapping):
            yield from _numbers(value, (*above, key))


def test_there_are_configurations_of_many_architectures() -> None:
    assert len(CONFIGURATIONS) > 30


@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
def test_no_number_makes_a_description_large(name: str) -> None:
    config = CONFIGURATIONS[name]
    for place in {*_numbers(config), *((key,) for key in UNSAID)}:
        changed = copy.deepcopy(config)
        inner = changed
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = MANY
        tracemalloc.start()
        try:
            model_from_config(changed, where=name)
        except InputError as error:
            assert "\n" not in str(error)
        finally:
            _, peak_bytes = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES, place
