"""The model that a log's arguments describe: the catalogue's, one of the same shapes, or none and why."""

from __future__ import annotations

from functools import cache

import pytest
from tests.strategies import small_case

from diagnose.logs import ARGUMENTS
from meshwright.api.seen_model import NAME, built, model_said
from meshwright.catalog import load_model
from meshwright.domain.label import parse_layout
from meshwright.errors import Message
from meshwright.evidence.rows.written import _shapes
from meshwright.frameworks import framework
from meshwright.frameworks.megatron.dump import logged
from meshwright.frameworks.megatron.figures import mixtures
from meshwright.frameworks.settings import Given, Reading

MEGATRON = framework("megatron")
NAMES = (
    "llama2-7b", "llama3-8b", "llama3.1-405b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "mixtral-8x7b", "deepseek-v3", "kimi-k2",
    "gpt-oss-120b", "gpt3-175b", "nemotron4-340b", "qwen2-57b-a14b",
)


@cache
def dump(name: str) -> dict[str, str]:
    """What Megatron-LM prints of the script that trains a model of the catalogue: attributes, lists as Python shows them."""
    case = small_case(name, devices=64, batch=64)
    layout = parse_layout("tp1 mb1 zero1", num_devices=64, global_batch_sequences=64, model=case.model)
    written = [each for each in MEGATRON.write(case, layout) if each.path.endswith(".sh")]
    script = MEGATRON.read(written, given=Given(num_devices=64)).source
    found = {"tensor_model_parallel_size": "1", "world_size": "64"}
    for flag, setting in script.settings.items():
        if setting.value is not None and flag.startswith("--"):
            found[flag.removeprefix("--").replace("-", "_")] = str(setting.value)
    if "[" in (where := found.get("moe_layer_freq", "")):
        found["moe_layer_freq"] = str(list(map(int, mixtures(where, case.model.num_layers))))
    return found | {"padded_vocab_size": str(case.model.vocabulary), "vocab_size": "None"}


def read(settings: dict[str, str]) -> Reading:
    return MEGATRON.read(logged(settings, "run.log"), given=Given(num_devices=64))


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_the_catalogue_is_known_by_its_figures(name):
    """And without the catalogue it is built with the same shapes, or not at all: never silently as another."""
    reading = read(dump(name))
    known = load_model(name)
    found, (why,) = model_said(reading)
    assert why.id == "diagnose.model-known"
    assert name in str(why)
    assert _shapes(found) == _shapes(known)
    alone = built(reading)
    assert isinstance(alone, Message) or (_shapes(alone), alone.name) == (_shapes(known), NAME)


def test_most_models_can_be_built_and_those_with_latent_attention_cannot():
    alone = {name: built(read(dump(name))) for name in NAMES}
    refused = {name for name, each in alone.items() if isinstance(each, Message)}
    assert len(refused) < len(NAMES) / 2
    latent = {name for name in NAMES if load_model(name).attention.latent}
    assert latent
    assert latent <= refused
    assert all("latent attention" in str(alone[name]) for name in latent)


def test_layers_that_are_mixtures_in_turn_are_no_dense_first_model():
    figures = {**dump("mixtral-8x7b"), "moe_layer_freq": "2", "num_layers": "31"}
    found, (why,) = model_said(read(figures))
    assert found is None
    assert "mixtures" in str(why)
    assert "--model" in str(why)


@pytest.mark.parametrize(("words", "layers", "found"), [
    ("1", 3, (True,) * 3), ("3", 4, (True, False, False, True)), ("([0]*1+[1]*2)", 3, (False, True, True)),
    ("([1]*1+[0]*1)*2+[1]*1", 5, (True, False, True, False, True)), ("[0,1]", 3, ()), ("__import__('os')", 2, ()),
    ("[1]*999999999999", 2, ()), ("0", 2, ()), ("[" * 3000, 2, ()),
])
def test_lists_of_layers_are_evaluated_and_nothing_else(words, layers, found):
    assert mixtures(words, layers) == found


def test_the_vocabulary_is_the_padded_one_where_the_dump_has_no_other():
    def vocabulary(**given: str) -> object:
        return read(ARGUMENTS | given).said.figures["vocabulary"]

    assert vocabulary() == 50304
    assert vocabulary(tokenizer_type="NullTokenizer") == 50304
    assert vocabulary(vocab_size="50257") == 50257


def test_a_dump_without_figures_says_what_it_lacks():
    few = {name: value for name, value in ARGUMENTS.items() if name != "padded_vocab_size"}
    found, (why,) = model_said(read(few))
    assert found is None
    assert "vocab" in str(why)


def test_figures_of_several_models_name_them():
    """Too few figures to tell one from the other, and too few to build one."""
    few = {name: value for name, value in dump("llama3-8b").items() if name != "padded_vocab_size"}
    found, (why,) = model_said(read({**few, "max_position_embeddings": "4096"}))
    assert (found, why.id) == (None, "diagnose.models")
    assert "llama3-8b" in str(why)
