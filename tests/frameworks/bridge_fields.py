"""Fields of Megatron-Bridge's configuration, read from the syntax trees of a checkout of it and of the Megatron-Core below it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

BRIDGE = ("training", "models/common", "models/gpt", "peft", "data", "")
CORE = ("core/transformer", "core/distributed", "core/optimizer", "core/datasets", "training/config", "core")
SKIPPED = {"ABC", "object", "Generic", "Protocol", "Container", "ModelProviderMixin", "ConfigBase"}
MODEL = ("GPTModelProvider", "MLAModelProvider", "MLATransformerConfig")
DATA = ("GPTDatasetConfig", "MockGPTDatasetConfig", "FinetuningDatasetConfig", "GPTSFTDatasetConfig", "HFDatasetConfig")
PEFT = ("LoRA", "CanonicalLoRA", "DoRA")
Fields = dict[str, tuple[str, str]]
"""Name -> annotation and default, as written."""


@cache
def classes(root: Path, folders: tuple[str, ...]) -> dict[str, ast.ClassDef]:
    """Classes by name; of one name the first in the order of the folders."""
    found: dict[str, ast.ClassDef] = {}
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            if "mimo" not in str(path) and "/tests/" not in str(path):
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef):
                        found.setdefault(node.name, node)
    return found


def fields_of(name: str, bridge: Path, core: Path, *, in_core: bool = False) -> Fields:
    """Fields of a dataclass with those of its bases; ``MCoreX`` and ``MTrainX`` are Megatron-Core's X."""
    plain = name.removeprefix("MCore").removeprefix("MTrain")
    in_core = in_core or plain != name
    own = {} if in_core else classes(bridge, BRIDGE)
    node = own.get(plain) or classes(core, CORE).get(plain)
    if node is None:
        return {}
    in_core = in_core or plain not in own
    found: Fields = {}
    for base in reversed(node.bases):
        title = ast.unparse(base).split("[")[0].split(".")[-1]
        if title not in SKIPPED:
            found |= fields_of(title, bridge, core, in_core=in_core or title == plain)
    return found | dict(filter(None, map(_field, node.body)))


def _field(node: ast.stmt) -> tuple[str, tuple[str, str]] | None:
    """One field with its annotation and default; None for what is none, or cannot be given."""
    if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)) or node.target.id.startswith("_"):
        return None
    annotation, value = ast.unparse(node.annotation), node.value
    if "ClassVar" in annotation:
        return None
    default = ""
    if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
        words = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        if words.get("init") == "False":
            return None
        default = words.get("default", "")
    elif isinstance(value, (ast.Constant, ast.Attribute, ast.UnaryOp)):
        default = ast.unparse(value)
    return node.target.id, (annotation, "" if default == "None" else default.strip("'\""))


def configuration(bridge: Path, core: Path) -> dict[str, tuple[str, str]]:
    """Dotted name -> annotation and default of everything in ``ConfigContainer``."""
    found: dict[str, tuple[str, str]] = {}
    for section, (annotation, _) in fields_of("ConfigContainer", bridge, core).items():
        names = {"model": MODEL, "dataset": DATA, "peft": PEFT}.get(section) or tuple(re.findall(r"\w+", annotation))
        for name in names:
            for field, told in fields_of(name, bridge, core).items():
                found.setdefault(f"{section}.{field}", told)
    return found
