"""Parameter counts and the reading of ``config.json`` against transformers itself, for every model that it can build.

Models are built on the meta device and shrunk: ``shrink`` keeps every kind of layer, layers of a kind are equal, and a
layer costs transformers milliseconds. What remains is the number of layers of each kind, which the reading of the full
``config.json`` and the published totals (``test_models.py``) check.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.catalog.hf_equivalents import equivalents, rotary
from tests.draws import together

from meshwright.catalog import load_model, models, shrink
from meshwright.domain.model import Model
from meshwright.perf.parameters import total_parameters
from meshwright.readers.hf_config import read_config

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.oracle
EQUIVALENTS = equivalents()

ORACLE_LAYERS = 13
"""Enough for two cycles of every pattern in the catalogue."""


def oracle_models() -> list[str]:
    return [name for name in models() if load_model(name).architecture in EQUIVALENTS]


def configuration(model: Model) -> Any:
    transformers = pytest.importorskip("transformers")
    config_class, fill = EQUIVALENTS[model.architecture]
    config = getattr(transformers, config_class)(**fill(model), **rotary(model))
    config.architectures = [model.architecture]
    return config


def normal(model: Model) -> Model:
    """What a text model's configuration can say: the shape without its name, where it was read, and a tower."""
    beside = tuple(each for each in model.beside if not each.startswith("vision tower"))
    return replace(model, name="", source="", assumed=(), architecture="", vision=None, beside=beside)


@together("name", oracle_models(), size=20)
@pytest.mark.filterwarnings("ignore")
def test_parameters_equal_the_class_of_transformers(name: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = load_model(name)
    small = shrink(model, min(model.num_layers, ORACLE_LAYERS))
    assert set(small.kinds) == set(model.kinds)
    with torch.device("meta"):
        built = getattr(transformers, model.architecture)(configuration(small))
    trained = [each for each in built.parameters() if each.requires_grad]  # ERNIE's score-correction bias is a frozen one
    assert sum(each.numel() for each in trained) == total_parameters(small)


@together("name", oracle_models(), size=20)
@pytest.mark.filterwarnings("ignore")
def test_configuration_reads_back_as_the_catalogue_model(name: str, tmp_path: Path) -> None:
    model = load_model(name)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(configuration(model).to_dict(), default=str))
    read = read_config(path)
    if model.rotary_base is None:  # then the configuration has the default of its class
        read = replace(read, rotary_base=None)
    if model.norm_epsilon is None:
        read = replace(read, norm_epsilon=None)
    assert normal(read) == normal(model)
    assert read.architecture == model.architecture
