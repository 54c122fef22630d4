"""Files of a framework on the command line: read, and made a case with what the flags and the files themselves say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from meshwright.api import numbers
from meshwright.api.beside import is_prose, of_the_run
from meshwright.api.called import called_otherwise, positional
from meshwright.api.cases import check_names, setup
from meshwright.api.fields import Faults, Field, Values
from meshwright.api.likely import likely_framework
from meshwright.api.numbers import MOST
from meshwright.api.options import CASE
from meshwright.api.packed_files import most_tokens, pack_tokens
from meshwright.errors import InputError, Message, fault
from meshwright.value import Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.api.cases import Setup
    from meshwright.domain.model import Model
    from meshwright.frameworks import File, Framework
    from meshwright.frameworks.settings import Given, Reading

_OWN = {"model", "framework"}
FILES = (
    Field(name="files", kind="arguments", metavar="FILE...", help="Configuration files and launch scripts of one training."),
    Field(name="from_", metavar="NAME[@VERSION]", panel="Trainer",
          help="The framework that the files are for [default: the one whose keys they hold]."),
    Field(name="arguments", parse=numbers.words, metavar="WORDS", panel="Trainer",
          help='Arguments that the script is called with, in one word: "8 /data"; NAME=VALUE in front of them sets variables.'),
    *(replace(field, kind="option", metavar="MODEL", panel="Model") for field in CASE if field.name == "model"),
    *(field for field in CASE if field.name not in _OWN),
)
"""Options of verbs that read files; those of a case are optional here."""

_SAID = {
    "devices": "devices", "global_batch": "global_batch_sequences", "sequence": "sequence_tokens", "precision": "precision",
    "gradient_dtype": "gradient_dtype", "optimizer": "optimizer", "task": "task",
    "implementation": "implementation", "launch": "launch",
}
"""Option -> field of ``Said`` that means the same."""
_NEEDED = {
    "model": "--model", "cluster": "--cluster (or --device with --nodes or --devices)", "global_batch": "--global-batch",
    "sequence": "--sequence",
}
"""What a case needs -> the options that say it."""


class Taken(Value, frozen=True, kw_only=True):
    """Files as read, and the case that they and the flags make."""

    framework: Framework
    """At the release that the files are for."""
    reading: Reading
    model: Model | None
    case: Setup | None
    """None where something is missing, or where what the files say is impossible."""
    missing: tuple[str, ...]
    """Options without which there is no case."""
    unmodelled: tuple[Message, ...] = ()
    """Why the figures of the files make no model, where they were to make one."""
    impossible: tuple[Message, ...]
    """What the files say and no case can be."""
    size: int | None
    """Devices, as far as anybody says."""
    starts: int | None = None
    """Devices that the files start by themselves, where flags say a number; None where the environment may say another."""
    asked: Mapping[str, object]
    """What the flags said, by field of ``Said``."""
    why_release: str
    """``given``, ``shown`` by the files, or ``assumed``."""

    @property
    def label(self) -> str | None:
        """The name of the layout, for its case where that is known; None where the files determine none."""
        from meshwright.domain.label import label
        from meshwright.estimate.naming import name_of

        layout = self.reading.layout
        if layout is not None and self.case is None:
            return label(layout, experts=self.model is None or self.model.is_moe)
        return None if layout is None or self.case is None else name_of(self.case.case, layout)


def take(
    values: Values, faults: Faults, texts: Sequence[File] = (), *, figures_do: bool = False, compared: bool = False
) -> Taken:
    """Read the files, or ``texts`` that stand for them; every fault of flags and files is raised together.

    ``figures_do``: where no model is named, the files' own figures make one, as far as they are whole. ``compared``: how many
    devices the files start by themselves is wanted beside the number that flags say.
    """
    from meshwright.catalog import load_cluster, load_model, shrink
    from meshwright.documents.opening import open_source
    from meshwright.frameworks import framework

    found: dict[str, Any] = {}
    if not (texts or values["files"]) and "files" not in faults.failed:
        faults.add("import.files", "FILE is missing: configuration files or launch scripts")
    with faults.at("from_"):
        if "from_" in values:
            found["framework"] = framework(values["from_"])
    with faults.at("model"):
        if "model" in values:
            found["model"] = load_model(values["model"])
    with faults.at("layers"):
        if "model" in found and "layers" in values:
            found["model"] = shrink(found["model"], values["layers"])
    paths, beside = of_the_run(values["files"])
    files = texts or _texts(values, faults, paths)
    check_names(values, faults)
    if faults.messages:  # what else is wrong with the files, in their own languages
        with faults:
            open_source(files)
    faults.check()
    told: list[Message] = []
    unmodelled: tuple[Message, ...] = ()
    if "framework" not in found:
        found["framework"], *told = likely_framework(files)
    named, model = found["framework"], found.get("model")
    version = values.get("from_", "").partition("@")[2] or None
    size = _size(values)
    starts = None
    if compared and size is not None:  # an adapter takes the devices that it is given as the files' own
        alone = [named.read(each, version=version and named.version, given=_given(values, model, None)).said.devices
                 for each in (files, called_otherwise(files))]
        starts = alone[0] if alone[0] == alone[1] else None
    reading = named.read(files, version=version and named.version, given=_given(values, model, size))
    _refuse_strange(named.at(reading.version), reading)
    if model is None and reading.said.model is not None:
        model = load_model(reading.said.model)
        layers = values.get("layers") or reading.said.figures.get("layers")
        if isinstance(layers, int) and 0 < layers < model.num_layers:  # the files cut it
            model = shrink(model, layers)
        reading = named.read(files, version=version and named.version, given=_given(values, model, size))
    size = size or reading.said.devices or reading.source.devices
    if size is None and "cluster" in values:
        size = load_cluster(values["cluster"]).num_devices
    if size is not None and reading.layout is None:
        reading = named.read(files, version=version and named.version, given=_given(values, model, size))
    if figures_do and model is None:
        from meshwright.api.seen_model import model_of_files

        model, said = model_of_files(reading)
        if model is None:
            unmodelled = said
        else:
            reading = named.read(files, version=version and named.version, given=_given(values, model, size))
            told += said
    if "lengths" not in values and reading.said.sequence_tokens and most_tokens(named, reading):
        told.append(Message("import.whole-samples", "samples are packed as the run goes; each is taken as {tokens:,} tokens long: "
                            "--lengths FILE says how long they are", {"tokens": reading.said.sequence_tokens}))
    why = "given" if version else "shown" if _shown(named, reading) else "assumed"
    merged = _merged(values, reading, size, named)
    if "model" not in values and model is not None:
        merged["model"] = model
    missing = tuple(name for name in _NEEDED if name not in merged and not _known_otherwise(name, merged))
    limit = most_tokens(named, reading) if "lengths" in values else None
    with faults.at("lengths"):
        if limit is not None and (most := pack_tokens(merged, reading, limit)):
            merged["max_tokens"] = most
    faults.check()
    case, impossible = (None, ()) if missing else _case(values, merged)
    if limit is not None and case is not None:
        given = replace(_given(values, model, size), packs=case.case.batch)
        reading = named.read(files, version=version and named.version, given=given)
    return Taken(
        framework=named.at(reading.version), reading=_with(reading, beside, told), model=model, case=case, missing=missing,
        unmodelled=unmodelled, impossible=impossible, size=size, starts=starts,
        asked=_asked(values, packed=most_tokens(named, reading) is None), why_release=why,
    )


def _with(reading: Reading, beside: Sequence[str], told: Sequence[Message]) -> Reading:
    """The reading with whose files they were taken for and what was left out of it among its remarks."""
    if beside:
        names = ", ".join(sorted({PurePath(path).name for path in beside}))
        told = [*told, Message("import.beside", "left out, for it stands beside the run: {names}", {"names": names})]
    return replace(reading, source=replace(reading.source, remarks=(*reading.source.remarks, *told))) if told else reading


def wanted(missing: Sequence[str], named: Mapping[str, str] = MappingProxyType({})) -> str:
    """The options that would say what is missing of a case, as words; ``named``: those of a verb that has others."""
    return ", ".join(named.get(name) or _NEEDED[name] for name in missing)


def _texts(values: Values, faults: Faults, paths: Sequence[str]) -> Sequence[File]:
    """The files with their texts; scripts get the arguments that they are called with."""
    from meshwright.documents.opening import is_script
    from meshwright.frameworks import File
    from meshwright.readers.safe import read_text

    head = ""
    with faults:
        head = positional(values["arguments"]) if "arguments" in values else ""
    files = []
    for path in paths:
        with faults:
            text = read_text(path)
            if is_prose(path):
                raise fault("import.prose", "is for people to read: give the configuration or the script", path=path)
            files.append(File(path=path, text=head + text if is_script(path) else text))
    return files


def _refuse_strange(framework: Framework, reading: Reading) -> None:
    """Refuse files that hold nothing of the framework: any layout of them would be its defaults."""
    from meshwright.documents.naming import ASKED_FOR

    if framework.surface is None or any(message.id in ASKED_FOR for message in reading.messages):
        return
    surface, keys = framework.surface(), reading.source.settings
    if not any(surface.find(key, reading.version) for key in (*keys, *reading.source.beneath)):
        program = reading.source.program
        launches = f" and launches {program}" if program else ""
        question = 'give that file, with --arguments "..." as it is called' if program.endswith(".sh") else "is --from right?"
        raise fault(
            "import.strange", "holds no key of {title}{launches}: {question}",
            title=framework.title, launches=launches, question=question,
            path=", ".join(document.path for document in reading.source.documents),
        )


def _asked(values: Values, *, packed: bool) -> Mapping[str, object]:
    """What flags say of the files, by field of ``Said``; of files that count packs, ``--global-batch`` counts what is packed."""
    options = dict(_SAID)
    if "lengths" in values and packed:
        options = {name: said for name, said in options.items() if name != "global_batch"} | {"packs": _SAID["global_batch"]}
    return {said: values[option] for option, said in options.items() if option in values}


def _size(values: Values) -> int | None:
    """Devices, as far as flags alone say them."""
    from meshwright.catalog import cluster_for, load_cluster

    if "devices" in values:
        return int(values["devices"])
    if "nodes" not in values:
        return None
    if "cluster" in values:
        return load_cluster(values["cluster"], nodes=values["nodes"]).num_devices
    if "device" in values:
        per_node = values.get("devices_per_node")
        return cluster_for(values["device"], nodes=values["nodes"], devices_per_node=per_node).num_devices
    return None


def _given(values: Values, model: Model | None, size: int | None) -> Given:
    """What is known beside the files."""
    from meshwright.frameworks.settings import Given

    batch = values.get("packs" if "lengths" in values else "global_batch")
    return Given(
        num_devices=size, devices_per_node=values.get("devices_per_node"), model=model,
        global_batch_sequences=batch, sequence_tokens=values.get("sequence"), task=values.get("task"),
    )


def _shown(framework: Framework, reading: Reading) -> bool:
    """Whether the files themselves show their release."""
    return framework.detect is not None and framework.detect(reading.source) is not None


def _merged(values: Values, reading: Reading, size: int | None, framework: Framework) -> dict[str, Any]:
    """A request: flags first, then what the files say; of a launch setting by setting."""
    from meshwright.domain.launch import launch_words
    from meshwright.frameworks.launching import said_settings

    said = reading.said
    names = {field.name for field in CASE} - _OWN | {"model"}
    merged = {name: value for name, value in values.items() if name in names and name != "request"}
    for option, field in _SAID.items():
        value = getattr(said, field)
        if option == "launch" and value is not None:
            merged[option] = launch_words(said_settings(value) | said_settings(merged.get(option)))
        elif option != "devices" and value is not None:
            merged.setdefault(option, value)
    if said.lora is not None and merged.get("task") == "lora":
        merged["lora"] = said.lora
    if size is not None and "nodes" not in merged:
        merged["devices"] = size
    if "lengths" in values and said.global_batch_sequences is not None and most_tokens(framework, reading) is None:
        merged.setdefault("packs", said.global_batch_sequences)  # files count packs, whatever was packed into them
    return merged | {"framework": f"{framework.name}@{reading.version}"}


def _known_otherwise(name: str, merged: Mapping[str, Any]) -> bool:
    """Whether something else says what is needed: a device and its number, packs, or the lengths of samples."""
    others = {"cluster": _has_cluster(merged), "global_batch": "packs" in merged, "sequence": "lengths" in merged}
    return others.get(name, False)


def _has_cluster(values: Mapping[str, Any]) -> bool:
    """Whether a cluster of a size is named."""
    return "cluster" in values or ("device" in values and bool({"devices", "nodes"} & values.keys()))


def _case(values: Values, merged: dict[str, Any]) -> tuple[Setup | None, tuple[Message, ...]]:
    """The case of a merged request; faults are those of the files where the flags alone make a case."""
    large = [name for name in ("devices", "global_batch", "sequence") if merged.get(name, 0) > MOST[name]]
    if large:
        template = "{name}={value} is more than {limit:,}"
        values_of = ({"name": _SAID[name], "value": merged[name], "limit": MOST[name]} for name in large)
        return None, tuple(Message("number.high", template, each) for each in values_of)
    if "packs" in merged and "global_batch" not in values and "packs" not in values:  # nobody counted the samples
        merged = {name: value for name, value in merged.items() if name != "global_batch"}
    try:
        return setup(merged, Faults()), ()
    except InputError as error:
        longest = merged.get("sequence", 1) if "lengths" in values else 1
        flags = {"global_batch": 1, "sequence": longest, **({} if "nodes" in values else {"devices": 1})}
        flags |= {name: value for name, value in merged.items() if name in values or name in ("framework", "model")}
        if "global_batch" not in values:
            flags.pop("packs", None)  # they are at fault beside the samples that the files count
        setup(flags, Faults())  # raises where the flags are at fault
        return None, error.messages
