"""How a run is launched: what neither its model nor its layout says, and what tells a tuned run from one as people start it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from meshwright.errors import fault, nearest

Graphs = Literal["none", "partial", "step"]
"""No CUDA graph; graphs of parts (attention, router, dispatch); the whole step as one graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Settings of a launch. What is left as it is here is what performance recipes do, and costs nothing.

    Routing is ``Training.balanced_routing``, the kernels of attention and torch.compile are a layout's (``domain.kernels``), and so
    is overlap (``Layout.overlap``); together with these they are what ``explain`` takes apart.
    """

    graphs: Graphs | None = None
    """None: as the implementation has them (``Implementation.cuda_graphs``)."""
    deterministic: bool = False
    """Kernels whose results do not depend on the order of additions: slower scatters, a slower backward of attention."""
    attention_by_default: bool = False
    """The framework itself chooses the back end of attention, and falls back where its fused kernels have no answer: sinks."""
    plain_host: bool = False
    """Processes are not bound to the cores beside their device, and Python collects garbage when it likes."""
    plain_optimizer: bool = False
    """The update is PyTorch's list of operators (``foreach``), each a pass over the states, not one fused kernel."""
    offloaded_layers: int = 0
    """Layers whose saved tensors go to the host in the forward and come back before their backward; what they take there is
    in no figure of host memory."""
    offloaded_checkpoints: bool = False
    """The inputs that full recomputation keeps lie on the host until the layer runs again."""
    given: frozenset[str] = frozenset()
    """Names of the settings that somebody chose; the others are the implementation's habits."""


AS_RECIPES = Launch()
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "graphs": ("none", "partial", "step"), "deterministic": ("off", "on"), "attention": ("named", "auto"),
    "host": ("bound", "plain"), "routing": ("balanced", "natural"), "dispatcher": ("alltoall", "flex"),
    "optimizer": ("fused", "plain"),
}
"""Setting of a launch -> its values, as ``--launch`` takes them."""


def parse_launch(text: str) -> dict[str, str]:
    """``graphs=none deterministic=on`` as settings and values; a name alone is ``on``.

    Errors:  ``InputError`` for a setting or a value that there is not, and for one that is given twice with two values.
    """
    found: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        name, equals, value = (part.strip().lower() for part in word.partition("="))
        value = value if equals else "on"
        if name not in SETTINGS:
            raise fault("launch.setting", "unknown setting {name!r}{hint}", name=name, hint=nearest(name, SETTINGS))
        if value not in SETTINGS[name]:
            raise fault("launch.value", "{name}={value}: {name} is one of {known}", name=name, value=value, known=SETTINGS[name])
        if found.setdefault(name, value) != value:
            raise fault("launch.twice", "{name} is both {one} and {other}", name=name, one=found[name], other=value)
    if found.get("graphs") == "step" and found.get("routing") == "natural":
        raise fault(
            "launch.graph-routing", "graphs=step and routing=natural contradict each other: a graph of the whole step has no room "
            "for numbers of tokens that the host must read; try graphs=partial",
        )
    return found


def launch_words(settings: Mapping[str, str]) -> str:
    """Settings in the one spelling of ``--launch``, in the order of ``SETTINGS``."""
    return " ".join(f"{name}={settings[name]}" for name in SETTINGS if name in settings)
