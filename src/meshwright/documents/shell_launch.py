"""The training launch among the commands of a script: launcher, program, and what each of them gets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct, structs

from meshwright.documents.shell_values import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a launched command after expansion.

    ``text`` is empty where it is not ``known``. ``line`` is where the value is written: the assignment of a variable, else where
    the word stands. ``span`` is the byte range of the file (UTF-8) that holds exactly this text; None where it is composed.
    ``shared``: the literal feeds several words. ``part``: the word with its way through the script, for edits.
    """

    text: str
    known: bool
    line: int
    span: tuple[int, int] | None = None
    shared: bool = False
    part: Text = field(default_factory=Text, repr=False, compare=False)


class Command(Struct, frozen=True, kw_only=True):
    """A program with its words and what was exported or prefixed; ``outer``: what a ``bash -c`` around it was started by."""

    words: tuple[Word, ...]
    line: int
    environment: Mapping[str, Word | None]
    outer: tuple[Word, ...] = ()


class Launch(Struct, frozen=True, kw_only=True):
    """A training launch. ``arguments`` is what the program gets; options of the launcher are without their dashes."""

    command: Command
    program: Word | None
    arguments: tuple[Word, ...]
    nodes: int | None
    devices_per_node: int | None
    launcher: str
    launcher_options: Mapping[str, Word]


class Launcher(Struct, frozen=True, kw_only=True):
    """The command line of a launcher: options without a value, options with one, options that count machines."""

    switches: frozenset[str]
    valued: frozenset[str]
    nodes: tuple[str, ...]
    per_node: tuple[str, ...]
    total: tuple[str, ...] = ()
    program: bool = True
    """A command of its own, and not a module of Python alone."""
    verbs: tuple[str, ...] = ()
    """Words behind the command of which one makes it launch."""
    verb_is_program: bool = False
    """The verb says what is run, and all behind it is its own."""
    by_environment: bool = False
    """Nodes and processes are variables of the environment, which stand among the options."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.replace("_", "-").split())


_TORCHRUN = Launcher(
    switches=_names(
        "standalone no-python run-path use-env module m signals-to-handle-off virtual-local-rank duplicate- "
        "stdout-filters"
    ),
    valued=_names(
        "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts monitor-interval "
        "start-method role log-dir r "
        "redirects t tee local-ranks-filter node-rank master-addr master-port local-addr logs-specs event-log-handler numa-binding "
        "signals-to-handle shutdown-timeout"
    ),
    nodes=("nnodes",), per_node=("nproc-per-node",),
)
_FACTORY = Launcher(
    switches=frozenset(), valued=frozenset(), nodes=("NNODES",), per_node=("NPROC_PER_NODE",), verbs=("train",),
    by_environment=True,
)
"""LLaMA-Factory's own, which starts torchrun. Source: llamafactory/launcher.py."""
_SWIFT = structs.replace(_FACTORY, verbs=("sft", "pt", "rlhf"), verb_is_program=True)
"""ms-swift's own, which starts torchrun. Source: swift/cli/main.py."""
LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": _TORCHRUN,
    "torch.distributed.launch": structs.replace(_TORCHRUN, program=False),
    "deepspeed": Launcher(
        switches=_names(
            "module m no-python no-local-rank no-ssh no-ssh-check force-multi save-pid enable-each-rank-log-off "
            "bind-cores-to-rank elastic-training quick-start"
        ),
        valued=_names(
            "H hostfile i include e exclude num-nodes num-gpus num-accelerators master-addr master-port launcher "
            "launcher-args autotuning node-rank "
            "min-elastic-nodes max-elastic-nodes bind-core-list ssh-port venv-script enable-each-rank-log log-level"
        ),
        nodes=("num-nodes",), per_node=("num-gpus", "num-accelerators"),
    ),
    "accelerate": Launcher(
        switches=_names(
            "multi-gpu cpu mps tpu use-deepspeed use-fsdp use-megatron-lm use-xpu use-parallelism-config quiet q "
            "debug no-python module m "
            "dynamo-use-fullgraph dynamo-use-dynamic ipex enable-cpu-affinity tpu-cluster no-tpu-cluster tpu-use- "
            "sudo tpu-use-cluster no-use-mpi"
        ),
        valued=_names(
            "config-file num-processes num-machines machine-rank main-process-ip main-process-port mixed- "
            "precision gpu-ids dynamo-backend "
            "dynamo-mode same-network num-cpu-threads-per-process rdzv-backend rdzv-conf max-restarts monitor- "
            "interval t tee log-dir role "
            "deepspeed-config-file deepspeed-hostfile zero-stage offload-optimizer-device offload-param-device "
            "gradient-accumulation-steps "
            "gradient-clipping zero3-init-flag zero3-save-16bit-model deepspeed-multinode-launcher deepspeed-exclusion-filter "
            "deepspeed-inclusion-filter fsdp-version fsdp-offload-params fsdp-sharding-strategy fsdp-auto-wrap-policy "
            "fsdp-transformer-layer-cls-to-wrap fsdp-backward-prefetch fsdp-state-dict-type fsdp-use-orig-params "
            "fsdp-min-num-params "
            "fsdp-cpu-ram-efficient-loading fsdp-sync-module-states fsdp-activation-checkpointing fsdp-reshard-after-forward "
            "fsdp-forward-prefetch downcast-bf16 fp8-backend same-network env main-training-function"
        ),
        nodes=("num-machines",), per_node=(), total=("num-processes",), verbs=("launch",),
    ),
    "msrun": Launcher(
        switches=frozenset(),
        valued=_names(
            "worker-num local-worker-num master-addr master-port node-rank log-dir join cluster-time-out bind- "
            "core sim-level sim-rank-id rank-table-file worker-log-name tail-worker-log hostname log-level "
            "cluster-timeout"
        ),
        nodes=(), per_node=("local-worker-num",), total=("worker-num",),
    ),
    "llamafactory-cli": _FACTORY,
    "lmf": _FACTORY,
    "megatron": _SWIFT,
}
_SLURM = Launcher(
    switches=frozenset(), valued=frozenset(),
    nodes=("nodes", "N"), per_node=("gpus-per-node", "ntasks-per-node", "gres"), total=("ntasks", "n", "gpus", "G", "np"),
)
_MODULES = {
    "torch.distributed.launch": "torch.distributed.launch",
    "torch.distributed.run": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}
_PYTHON = re.compile(r"python[0-9.]*|pypy3?|ipython")
_OPTION = re.compile(r"--?[A-Za-z][\w.-]*(=.*)?", re.DOTALL)
_WRAPPERS = ("srun", "mpirun", "mpiexec", "horovodrun")
_PYTHON_VALUED = ("-W", "-X", "--check-hash-based-pycs")


def find_launch(commands: Sequence[Command], headers: Mapping[str, Word]) -> Launch | None:
    """The last launch of the strongest kind: a launcher, then Python with flags, then another shell script."""
    best: tuple[int, Launch] | None = None
    for command in commands:
        found = _launch_of(command, headers)
        if found and (best is None or found[0] >= best[0]):
            best = found
    return best[1] if best else None


def other_script(command: Command) -> str:
    """The shell script that a command starts or submits; empty where it starts none."""
    for word in command.words:
        if word.known and re.search(r"\.(sh|slurm|sbatch|bash)$", word.text) and not word.text.startswith("-"):
            return word.text
    return ""


def _base(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _launch_of(command: Command, headers: Mapping[str, Word]) -> tuple[int, Launch] | None:
    """How strong a claim this command has to be the launch, and what it launches."""
    words = command.words
    for index, word in enumerate(words):
        name = _base(word)
        launcher = LAUNCHERS.get(name)
        if launcher is not None and launcher.program:
            rest = words[index + 1 :]
            if not launcher.verbs or (rest and rest[0].text in launcher.verbs):
                return 3, _launched(command, name, rest[1:] if launcher.verbs else rest, words[:index], headers)
        if _PYTHON.fullmatch(name) or (not word.known and _runs(words[index + 1 : index + 3])):
            return _python(command, words[index + 1 :], words[:index], headers)
        if name.endswith(".py") and (index == 0 or [_base(each) for each in words[:2]] == ["uv", "run"]):
            return 1, _plain(command, "python", word, words[index + 1 :], words[:index], headers)
        if name in ("bash", "sh") and index + 1 < len(words) and not words[index + 1].text.startswith("-"):
            return 0, _plain(command, "bash", words[index + 1], words[index + 2 :], words[:index], headers)
    return None


def _runs(words: Sequence[Word]) -> bool:
    """Whether words behind an unknown one (an array that branches fill in different ways) are what Python runs."""
    texts = [word.text for word in words if word.known]
    return bool(texts) and (texts[0].endswith(".py") or (texts[0] == "-m" and "." in "".join(texts[1:])))


def _python(
    command: Command, rest: tuple[Word, ...], before: tuple[Word, ...], headers: Mapping[str, Word]
) -> tuple[int, Launch] | None:
    index = 0
    while index < len(rest):
        text = rest[index].text
        if text == "-m" and index + 1 < len(rest):
            module, after = rest[index + 1], rest[index + 2 :]
            if module.text in _MODULES:
                return 3, _launched(command, _MODULES[module.text], after, before, headers)
            return _weight(after), _plain(command, "python", module, after, before, headers)
        if text.startswith("-") and rest[index].known:
            if text == "-c":
                return None
            index += 2 if text in _PYTHON_VALUED else 1
            continue
        after = rest[index + 1 :]
        return _weight(after) + (any(_base(word) in _WRAPPERS for word in (*before, *command.outer)) and bool(after)), _plain(
            command, "python", rest[index], after, before, headers
        )
    return None


def _weight(arguments: Sequence[Word]) -> int:
    return 1 if any(_OPTION.fullmatch(word.text) for word in arguments) or arguments else 0


def _plain(
    command: Command,
    launcher: str,
    program: Word,
    arguments: tuple[Word, ...],
    before: tuple[Word, ...],
    headers: Mapping[str, Word],
) -> Launch:
    nodes, devices = _around((*command.outer, *before), headers)
    return Launch(
        command=command,
        program=program,
        arguments=arguments,
        nodes=nodes,
        devices_per_node=devices,
        launcher=launcher,
        launcher_options={},
    )


def _launched(command: Command, name: str, rest: tuple[Word, ...], before: tuple[Word, ...], headers: Mapping[str, Word]) -> Launch:
    """Split what follows a launcher into its options, the program and the program's arguments.

    A template may have no program: options that the launcher does not know are then the program's.
    """
    launcher = LAUNCHERS[name]
    options: dict[str, Word] = {}
    stray: list[Word] = []
    program: Word | None = None
    arguments: tuple[Word, ...] = ()
    module = False
    index = 0
    if launcher.verb_is_program:
        program, arguments, rest = command.words[len(before) + 1], rest, ()
    while index < len(rest):
        word = rest[index]
        if word.known and _OPTION.fullmatch(word.text):
            key, equals, value = word.text.lstrip("-").partition("=")
            key = key.replace("_", "-")
            if key in launcher.switches or (equals and key in launcher.valued):
                options[key] = word if not equals else _after_equals(word, value)
                module = module or key in ("m", "module")
                index += 1
                continue
            if key in launcher.valued and index + 1 < len(rest):
                options[key] = rest[index + 1]
                index += 2
                continue
            if not _program_follows(rest[index + 1 :], module):
                arguments = rest[index:]
                break
            stray.append(word)  # an option that this version of the tables does not know
        elif (
            word.text in ("...", "\N{HORIZONTAL ELLIPSIS}")
            or (not module and (word.known and not _base(word).endswith(".py")) and _program_follows(rest[index + 1 :], module))
            or (not word.known and not _base(word).endswith(".py") and _program_follows(rest[index + 1 :], module))
        ):
            stray.append(word)
        else:
            program, arguments = word, rest[index + 1 :]
            break
        index += 1
    if launcher.by_environment:
        counted = {name: command.environment.get(name) for name in (*launcher.nodes, *launcher.per_node)}
        options |= {name: word for name, word in counted.items() if word is not None}
    nodes, devices = _counts(launcher, options)
    around_nodes, around_devices = _around((*command.outer, *before), headers)
    if not (set(options) & set(launcher.nodes + launcher.total)):
        nodes = nodes or around_nodes
    if not (set(options) & set(launcher.per_node + launcher.total)):
        devices = devices or around_devices
    return Launch(
        command=command, program=program, arguments=arguments, nodes=nodes, devices_per_node=devices,
        launcher=name, launcher_options=options,
    )


def _program_follows(rest: Sequence[Word], module: bool) -> bool:
    """Whether a script stands further on, before any flag that no launcher has."""
    return not module and any(_base(word).endswith(".py") and not word.text.startswith("-") for word in rest[:80]) and _early(rest)


def _early(rest: Sequence[Word]) -> bool:
    known = frozenset().union(*(each.switches | each.valued for each in LAUNCHERS.values()))
    for word in rest:
        if _base(word).endswith(".py") and not word.text.startswith("-"):
            return True
        if word.known and word.text.startswith("--") and word.text.lstrip("-").partition("=")[0].replace("_", "-") not in known:
            return False
    return False


def _after_equals(word: Word, value: str) -> Word:
    size = len(word.part.plain)
    part = word.part.cut(size - len(value.encode()), size)
    return Word(text=value, known=word.known, line=word.line, span=part.span(), shared=word.shared, part=part)


MOST_COUNT = 9_999_999
"""Nodes, devices or processes: more than any launch has."""


def _integer(word: Word | None) -> int | None:
    """A count; ``gpu:8`` and ``gpu:h100:8`` of Slurm count too, elastic ranges ``1:4`` do not."""
    if word is None or not word.known:
        return None
    match = re.fullmatch(r"(?:gpu[\w:.-]*:)?(\d{1,7})(?:\(.*\))?|(\d{1,7}):(\d{1,7})", word.text, re.ASCII)
    if not match:
        return None
    if match[2]:
        return int(match[2]) if match[2] == match[3] else None
    return int(match[1])


def _counts(launcher: Launcher, options: Mapping[str, Word]) -> tuple[int | None, int | None]:
    """Nodes and devices per node by a launcher's options."""

    def first(names: Sequence[str]) -> int | None:
        return next((count for name in names if (count := _integer(options.get(name))) is not None), None)

    nodes, per_node, total = first(launcher.nodes), first(launcher.per_node), first(launcher.total)
    if total:
        if per_node is None and nodes and total % nodes == 0:
            per_node = total // nodes
        if nodes is None and per_node and total % per_node == 0:
            nodes = total // per_node
    return nodes, per_node


def _around(words: Sequence[Word], headers: Mapping[str, Word]) -> tuple[int | None, int | None]:
    """Nodes and devices per node by ``srun`` or ``mpirun`` around, then by the batch headers."""
    options: dict[str, Word] = dict(headers)
    start = next((i for i, word in enumerate(words) if _base(word) in _WRAPPERS), None)
    if start is not None:
        for word, follower in zip(words[start:], [*words[start + 1 :], None], strict=True):
            if word.known and _OPTION.fullmatch(word.text):
                key, equals, value = word.text.lstrip("-").partition("=")
                if equals:
                    options[key] = _after_equals(word, value)
                elif follower is not None and not follower.text.startswith("-"):
                    options[key] = follower
                elif len(word.text) > 2 and word.text[1] != "-" and word.text[2:].isdigit():
                    options[word.text[1]] = _after_equals(word, word.text[2:])
    return _counts(_SLURM, options)
