"""How a run is launched: what neither its model nor its layout says, and what tells a tuned run from one as people start it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from meshwright.errors import fault, nearest
from meshwright.value import Value

Graphs = Literal["none", "partial", "step"]
"""No CUDA graph; graphs of parts (attention, router, dispatch); the whole step as one graph."""


class Launch(Value, frozen=True, kw_only=True):
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
    offloaded_modules: tuple[str, ...] = ()
    """Modules of every layer whose inputs do so, by the names of Megatron-Core's --offload-modules."""
    offloaded_checkpoints: bool = False
    """The inputs that full recomputation keeps lie on the host until the layer runs again."""
    slice_tokens: int = 0
    """Tokens of a slice in which a dense feed-forward block runs, forward and backward; 0: all at once."""
    given: frozenset[str] = frozenset()
    """Names of the settings that somebody chose; the others are the implementation's habits."""


    @property
    def offloads(self) -> bool:
        """Whether any activation waits on the host."""
        return bool(self.offloaded_layers or self.offloaded_modules or self.offloaded_checkpoints)


AS_RECIPES = Launch()
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "graphs": ("none", "partial", "step"), "deterministic": ("off", "on"), "attention": ("named", "auto"),
    "host": ("bound", "plain"), "routing": ("balanced", "natural"), "dispatcher": ("alltoall", "flex"),
    "checkpoints": ("device", "host"), "optimizer": ("fused", "plain"), "vision": ("none", "frozen", "trained"),
}
"""Setting of a launch -> its values, as ``--launch`` takes them."""
COUNTS: Mapping[str, int] = {"offload_layers": 10_000, "slice_tokens": 100_000_000, "image_tokens": 100_000_000}
"""Settings that are whole numbers -> the most that they may be; nought is off, or what is assumed."""
OFFLOAD_MODULES = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Values of ``offload_modules``, joined by ``+``: modules whose inputs the host takes; ``none`` is off."""
NAMES: Mapping[str, tuple[str, ...]] = {"offload_modules": OFFLOAD_MODULES}
KNOWN = (*SETTINGS, *NAMES, *COUNTS)
"""Every setting, in the order of their one spelling."""
OFF: Mapping[str, str] = {"checkpoints": "device", "offload_modules": "none", "offload_layers": "0", "slice_tokens": "0"}
"""Settings of activation memory -> the value that leaves activations as they are."""


def chosen(launch: Launch) -> tuple[str, ...]:
    """Settings of activation memory that a launch has."""
    has = {
        "checkpoints": launch.offloaded_checkpoints, "offload_modules": launch.offloaded_modules,
        "offload_layers": launch.offloaded_layers, "slice_tokens": launch.slice_tokens,
    }
    return tuple(name for name in OFF if has[name])


def parse_launch(text: str) -> dict[str, str]:
    """``graphs=none deterministic=on offload_layers=8`` as settings and values; a name alone is ``on``.

    Errors:  ``InputError`` for a setting or a value that there is not, for one that is given twice with two values, and for
             settings that contradict each other.
    """
    found: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        name, equals, value = (part.strip().lower() for part in word.partition("="))
        value = value if equals else "on"
        if name not in KNOWN:
            raise fault("launch.setting", "unknown setting {name!r}{hint}", name=name, hint=nearest(name, KNOWN))
        value = _value(name, value)
        if found.setdefault(name, value) != value:
            raise fault("launch.twice", "{name} is both {one} and {other}", name=name, one=found[name], other=value)
    if found.get("graphs") == "step" and found.get("routing") == "natural":
        raise fault(
            "launch.graph-routing", "graphs=step and routing=natural contradict each other: a graph of the whole step has no room "
            "for numbers of tokens that the host must read; try graphs=partial",
        )
    if found.get("vision", "none") == "none" and "image_tokens" in found:
        raise fault(
            "launch.images", "image_tokens={tokens} needs a tower: vision=frozen or vision=trained", tokens=found["image_tokens"],
        )
    modules = found.get("offload_modules", "none")
    if modules != "none" and found.get("offload_layers", "0") != "0":
        raise fault(
            "launch.offload-twice", "offload_layers={layers} and offload_modules={modules} contradict each other: whole layers go "
            "to the host, or inputs of modules in all of them; leave one out", layers=found["offload_layers"], modules=modules,
        )
    if "attn_proj" in modules.split("+") and "core_attn" not in modules.split("+"):
        raise fault(
            "launch.offload-alone", "offload_modules={modules}: the input of attn_proj is what core_attn keeps as its output, so "
            "it stays on the device; add core_attn", modules=modules,
        )
    return found


def _value(name: str, value: str) -> str:
    """A value in its one spelling.

    Errors:  ``InputError`` where the setting has no such value.
    """
    if name in COUNTS:
        if not (value.isascii() and value.isdigit()) or int(value) > COUNTS[name]:
            most = COUNTS[name]
            raise fault("launch.count", "{name}={value}: a whole number from 0 to {most}", name=name, value=value, most=most)
        return str(int(value))
    if name in NAMES:
        named = () if value == "none" else value.split("+")
        if unknown := [each for each in named if each not in NAMES[name]]:
            known = ("none", *NAMES[name])
            raise fault("launch.value", "{name}={value}: {name} is one of {known}", name=name, value=unknown[0], known=known)
        return "+".join(each for each in NAMES[name] if each in named) or "none"
    if value not in SETTINGS[name]:
        raise fault("launch.value", "{name}={value}: {name} is one of {known}", name=name, value=value, known=SETTINGS[name])
    return value


def offload_words(named: Iterable[str]) -> dict[str, str]:
    """Modules as files name them, as a setting; those that no formula knows are left out."""
    known = "+".join(each for each in OFFLOAD_MODULES if each in set(named))
    return {"offload_modules": known} if known else {}


def launch_words(settings: Mapping[str, str]) -> str:
    """Settings in the one spelling of ``--launch``, in the order of ``KNOWN``."""
    return " ".join(f"{name}={settings[name]}" for name in KNOWN if name in settings)
