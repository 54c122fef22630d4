"""MindFormers' experimental PyNative core, the ancestor of MindSpeed-Core-MS r0.1.0: its keys without the kind of context
parallelism, its rules and texts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from meshwright.frameworks.mindspeed_core_ms import FEATURES
from meshwright.frameworks.mindspeed_core_ms.limits import limits_of
from meshwright.frameworks.mindspeed_core_ms.mistakes import file_checks, unknown_key
from meshwright.frameworks.mindspeed_core_ms.reading import interpret
from meshwright.frameworks.mindspeed_core_ms.writing import UNSPOKEN, Home, decide, normal, write
from meshwright.frameworks.resume import CUT

if TYPE_CHECKING:
    from meshwright.frameworks.base import Framework


HOME = Home(
    title="MindFormers", variable="MINDFORMERS_PATH", checkout="mindformers, branch br_feature_mcore",
    needs="A training script calls `init_configs_from_yaml` and `pretrain` of `mindformers.experimental.parallel_core.pynative`.",
    lists="Lists by stage are `[virtual stage][stage]`.",
)


def experimental(framework: Framework) -> Framework:
    """MindFormers at the release ``experimental``."""
    name, title = framework.name, f"{framework.title} experimental"
    features = replace(FEATURES, name=name, context_kinds=("ring",))
    return replace(
        framework, version="experimental", implementation="mindspore-cells", features=features,
        limits=limits_of(name, title, features),
        writer=partial(write, home=HOME),
        decide=decide, interpreter=partial(interpret, framework=name), checks=file_checks(name),
        unknown_keys=unknown_key, normal=normal, unspoken=UNSPOKEN, resume=CUT,
    )
