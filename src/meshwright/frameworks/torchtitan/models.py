"""The models that torchtitan has: flavours by their figures, and the configurations that its releases register.

``flavours.csv``: one row a flavour of a module; ``config`` is the function of its ``config_registry`` (0.3 and later), ``base`` the
one to copy where it has none. ``configurations.csv``: what each registered configuration sets other than the dataclasses' defaults.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from meshwright.domain.model import Mlp
from meshwright.frameworks.tables import rows
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.documents.source import Source
    from meshwright.domain.model import Model

RELEASES = ("0.2", "0.3", "main")
"""0.2 is 0.2.2, 0.3 is 0.3.0, main is commit b5bcd76."""
OWN_MODULE = "meshwright_flavour"
"""Module that is written for a flavour without a registered configuration."""


class Flavour(Struct, frozen=True, kw_only=True):
    """A model of torchtitan."""

    module: str
    name: str
    config: str
    base: str
    layers: int
    figures: tuple[int, ...]
    """Hidden, layers, vocabulary, heads, key-value heads, head width, experts, feed-forward width, tied embeddings."""

    @property
    def function(self) -> str:
        """The configuration's function; of one that is written for it, its name."""
        return self.config or f"{self.module}_{self.name}".lower().replace("-", "_").replace(".", "_")


class Configuration(Value, frozen=True, kw_only=True):
    """A registered configuration."""

    module: str
    flavour: str
    layers: int
    task: str
    defaults: Mapping[str, str]
    """Key -> text of its value."""


@cache
def flavours(release: str) -> Mapping[tuple[str, str], Flavour]:
    """The flavours of a release by module and name."""
    index = RELEASES.index(release)
    found = {}
    for row in rows(__package__, "flavours.csv"):
        first = RELEASES.index(row["since"]) if row["since"] else 0
        last = RELEASES.index(row["until"]) if row["until"] else len(RELEASES) - 1
        if first <= index <= last:
            names = ("hidden", "layers", "vocabulary", "heads", "key_value_heads", "head_dim", "experts", "width", "tied")
            figures = tuple(int(row[name]) for name in names)
            found[row["module"], row["flavour"]] = Flavour(
                module=row["module"], name=row["flavour"], config=row["config"], base=row["base"], layers=figures[1],
                figures=figures,
            )
    return found


@cache
def configurations(release: str) -> Mapping[str, Configuration]:
    """The registered configurations of a release by the names of their functions."""
    return {
        row["config"]: Configuration(
            module=row["module"], flavour=row["flavour"], layers=int(row["layers"]), task=row["task"],
            defaults=dict(pair.split("=", 1) for pair in row["defaults"].split(";") if pair),
        )
        for row in rows(__package__, "configurations.csv") if row["release"] == release
    }


def configured(source: Source, release: str) -> Configuration | None:
    """The configuration that a run starts from: of its module by its name; of a module that is written for it, the base's with its
    own model. A name that torchtitan registers in another module is not it."""
    name, module = str(source.value("config", "")), source.value("module")
    known = configurations(release)
    if module == OWN_MODULE:
        own = next((each for each in flavours(release).values() if each.function == name), None)
        base = known.get(own.base) if own is not None else None
        return replace(base, flavour=own.name, layers=own.layers) if own is not None and base is not None else None
    found = known.get(name)
    return found if found is None or module in (None, found.module) else None


def _module_of(model: Model) -> str:
    """The module that has a model's sort of layers."""
    attention = model.attention
    if attention.latent is not None:
        return "deepseek_v3"
    if attention.sinks:
        return "gpt_oss"
    if attention.query_key_norm == "head":
        return "llama4" if model.architecture.startswith("Llama4") else "qwen3"
    return "llama4" if model.is_moe else "llama3"


def figures_of(model: Model) -> tuple[int, ...]:
    """What flavours are told apart by (``Flavour.figures``)."""
    attention, experts = model.attention, model.experts
    block = model.kinds[-1].feed_forward
    width = experts.expert_width if experts else block.width if isinstance(block, Mlp) else 0
    return (
        model.hidden, model.num_layers, model.vocabulary, attention.num_heads, attention.num_key_value_heads, attention.head_dim,
        experts.num_experts if experts else 0, width, int(model.tied_embeddings),
    )


def flavour_of(model: Model, release: str) -> Flavour | None:
    """The flavour that is this model, or None. Multi-token prediction is left out: no flavour has it."""
    module, figures = _module_of(model), figures_of(model)
    modules = {module, "llama4"} if model.architecture.startswith("Llama4") else {module}
    return next((each for each in flavours(release).values() if each.module in modules and each.figures == figures), None)


def module_name(model: Model) -> str:
    """The module whose layers a model would need, for messages."""
    return _module_of(model)
