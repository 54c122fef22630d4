"""What stands beside every plan: a README that says what to run and what was predicted, and a launch script for torchrun.

Frameworks fill in a ``Manual``; the wording is the same for all of them.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from meshwright.documents import quoting
from meshwright.documents.quoting import Shell, Written
from meshwright.estimate.naming import name_of
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.settings import TASK_VARIABLE
from meshwright.units import GIB
from meshwright.words import percent, seconds, speed

if TYPE_CHECKING:
    from jinja2 import Environment

    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.layout import Layout

SHORT_RUN = 50
"""Optimizer steps where the training names no tokens: enough to see the throughput."""


class Variable(Struct, frozen=True, kw_only=True):
    """One environment variable: its value (None: must not be set) and why."""

    name: str
    value: str | None
    """Written as it is; a ``Shell`` is what the shell makes of it."""
    reason: str


class Blank(Struct, frozen=True, kw_only=True):
    """A shell variable to fill in: its default, and what it is."""

    name: str
    default: str
    """Written as it is; a ``Shell`` (``$PWD``) is what the shell makes of it."""
    what: str = ""


class Switch(Struct, frozen=True, kw_only=True):
    """Something that may be faster but is off, its risk level, and what it does."""

    name: str
    risk: str
    what: str


class Manual(Struct, frozen=True, kw_only=True):
    """What a README and a launch script say beyond the plan."""

    title: str
    """The framework with its release."""
    needs: str = ""
    """What must be installed, in a sentence."""
    commands: tuple[tuple[str, str], ...] = ()
    """Where, and the command to run there."""
    blanks: tuple[Blank, ...] = ()
    variables: tuple[Variable, ...] = ()
    off: tuple[Switch, ...] = ()
    probe: str = ""
    """How to run the probe, and what to do with its result; empty where there is none."""
    assumed: tuple[str, ...] = ()
    """Where the files stand for something that they do not say exactly, and what the framework has no key for."""


class Launch(Struct, frozen=True, kw_only=True):
    """A command that every node runs."""

    checkout: str = ""
    """Variable that names the framework's checkout, from which the command is run; empty: the script's own folder."""
    command: tuple[str, ...] = ()
    """Lines of the command, as the shell expands them; ``$HERE`` is the script's folder, ``$NODES``, ``$DEVICES_PER_NODE``,
    ``$NODE``, ``$MASTER_ADDR`` and ``$MASTER_PORT`` are set."""
    ray: str = ""
    """What stands before ``ray`` and ``python`` where Ray is started on each of several nodes, and the command runs on the first
    alone; empty: nobody needs Ray."""


TORCHRUN = (
    'torchrun --nnodes "$NODES" --nproc-per-node "$DEVICES_PER_NODE" --node-rank "$NODE"',
    '--master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT"',
)


def with_launch(manual: Manual, options: Options) -> Manual:
    """The manual with the variables of the launch, over those of the same name, and what the files do not carry of it."""
    assumed = tuple(each.words for each in options.launch.remarks)
    return structs.replace(manual, variables=launch_variables(manual.variables, options), assumed=(*assumed, *manual.assumed))


def launch_variables(variables: tuple[Variable, ...], options: Options) -> tuple[Variable, ...]:
    """Variables with those of the launch, which stand for others of the same name."""
    asked = options.launch.variables
    own = tuple(Variable(name=name, value=value, reason=f"--launch {setting}") for name, (value, setting) in asked.items())
    return (*(each for each in variables if each.name not in asked and each.name not in options.launch.without), *own)


def readme(case: Case, layout: Layout, options: Options, manual: Manual) -> File:
    """``README.md`` beside the files."""
    manual = with_launch(structs.replace(manual, probe="") if options.is_probe else manual, options)
    values = {**common_values(case, layout, options), "manual": manual}
    return File(path="README.md", text=template("README.md.j2").render(values))


def launch_script(case: Case, layout: Layout, options: Options, manual: Manual, launch: Launch, *, path: str = "launch.sh") -> File:
    """A script for one node, for several by hand, and for Slurm, that runs the launch on each node."""
    values = {**common_values(case, layout, options), "manual": with_launch(manual, options), "launch": launch, "path": path}
    return File(path=path, text=template("launch.sh.j2").render(values), executable=True)


def task_variables(case: Case) -> tuple[Variable, ...]:
    """The task where it is not pretraining, for a framework whose keys do not say it: ``Reading.with_task`` reads it back."""
    task = case.training.task
    reason = "what is trained: read by meshwright check alone"
    return () if task == "pretrain" else (Variable(name=TASK_VARIABLE, value=task, reason=reason),)


def unsaved(*keys: str) -> str:
    """That a run keeps nothing, and what would make it: a folder of its own for each plan."""
    names = ", ".join(f"`{key}`" for key in keys)
    return f"No checkpoint is saved or loaded: {names} would; give each plan a folder of its own."


def start_commands(layout: Layout, case: Case, path: str = "launch.sh", before: str = "") -> tuple[tuple[str, str], ...]:
    """How a launch script is started: here or on each node, and under Slurm."""
    prefix = f"{before} " if before else ""
    nodes = num_nodes(layout, case)
    by_hand = (
        ("here", f"{prefix}bash {path}") if nodes == 1
        else (f"by hand, on each of {nodes} nodes", f"NODE_RANK=<0..{nodes - 1}> MASTER_ADDR=<first node> {prefix}bash {path}")
    )
    return (by_hand, ("Slurm", f"{prefix}sbatch {path}"))


def node_probe(name: str) -> str:
    """How to measure the memory of a rank where a framework has no fake process group: on one node, at two depths."""
    return (
        f"{name} has no fake process group: run one step on a single node with fewer layers (`num_hidden_layers` of the model's "
        "configuration) at two depths, read `torch.cuda.max_memory_reserved()` and extend the line to all layers; shards of one "
        "node are larger. `meshwright estimate --request plan.yaml --anchor-memory 0=BYTES` takes the result."
    )


def num_nodes(layout: Layout, case: Case) -> int:
    """Nodes that the layout fills."""
    return layout.world // devices_per_node(layout.world, case.cluster.devices_per_node)


def devices_per_node(world: int, full: int) -> int:
    """Devices to use on each node: all of them, or the largest count that divides the world.

    >>> devices_per_node(512, 8), devices_per_node(4, 8), devices_per_node(12, 8)
    (8, 4, 6)
    """
    return max(count for count in range(1, min(world, full) + 1) if world % count == 0)


def train_steps(case: Case, options: Options) -> int:
    """Optimizer steps: as asked for, or for the tokens of the training, or a short run."""
    if options.train_iters is not None:
        return options.train_iters
    return ceil(case.training.tokens / case.batch.tokens) if case.training.tokens else SHORT_RUN


def bindings(case: Case, nodes: int) -> tuple[Blank, ...]:
    """Which network interfaces the nodes talk over, to be filled in; nothing on one node.

    Source:  guide 003:109; NCCL and CANN documentation, environment variables.
    """
    if nodes == 1:
        return ()
    socket = "interface over which the nodes find each other, as in eth0"
    if case.cluster.device.family == "ascend":
        return tuple(Blank(name=name, default="", what=socket) for name in ("HCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"))
    return (
        Blank(name="NCCL_IB_HCA", default="", what="ports that carry messages, as in =mlx5_0,mlx5_1; a prefix takes them all"),
        Blank(name="NCCL_SOCKET_IFNAME", default="", what=socket),
    )


def predicted(estimate: Estimate | None) -> list[tuple[str, str]]:
    """Predicted figures as a person reads them; empty without an estimate."""
    if estimate is None:
        return []
    tflops = estimate.model_flops_per_s_per_device / 1e12
    return [
        ("step", seconds(estimate.step_s)),
        ("throughput", f"{speed(estimate.tokens_per_s)} tokens/s, {speed(estimate.tokens_per_s_per_device)} per device"),
        ("model FLOPs", f"{speed(tflops)} TFLOP/s per device, MFU {percent(estimate.mfu_ratio)} ({estimate.flops_convention})"),
        ("memory", f"{estimate.memory_reserved_bytes / GIB:.1f} of {estimate.memory_capacity_bytes / GIB:.1f} GiB "
                   f"on the fullest device (stage {estimate.peak_stage})"),
        ("calibration", estimate.calibration if estimate.calibrated else f"{estimate.calibration}, uncalibrated"),
    ]


def common_values(case: Case, layout: Layout, options: Options) -> dict[str, Any]:
    """What every template fills in."""
    per_node = devices_per_node(layout.world, case.cluster.devices_per_node)
    return {
        "case": case, "layout": layout, "label": options.label or name_of(case, layout), "predicted": predicted(options.estimate),
        "nodes": layout.world // per_node, "per_node": per_node,
        "devices_asked": f"--gres=npu:{per_node}" if case.cluster.device.family == "ascend" else f"--gpus-per-node={per_node}",
        "bindings": bindings(case, layout.world // per_node), "job": f"{case.model.name}-{layout.world}",
    }


@cache
def _environment() -> Environment:
    """Templates of all frameworks; a name without a value is our mistake. Jinja is imported when a file is written."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("meshwright.frameworks", "templates"), undefined=StrictUndefined, finalize=_written,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )
    environment.filters |= {
        "word": quoting.word, "comment": quoting.comment, "slurm": quoting.slurm, "markdown": quoting.markdown,
        "code": quoting.markdown_code, "prose": quoting.prose, "value": _value, "line": _line, "variable": _variable,
        "assigned": _assigned, "exported": _exported,
    }
    return environment


def _written(value: object) -> object:
    """What a template puts in, which is a number or has gone through a filter that knows the language."""
    if isinstance(value, str) and not isinstance(value, Written):
        raise TypeError(f"a template writes {value!r} without a filter that quotes it")
    return value


def _value(value: str | None, absent: str) -> Written:
    """A value in a table of Markdown, or the word for none."""
    return quoting.markdown_code(value) if value else quoting.markdown(absent)


def _line(command: str | tuple[str, ...]) -> Written:
    """A command of ours, of which each line is shell already."""
    return Written(command if isinstance(command, str) else " \\\n    ".join(command))


def _variable(name: str) -> Written:
    """What a variable of the script holds."""
    return quoting.word(Shell(f"${name}"))


def _assigned(blank: Blank, *, required: bool = True) -> Written:
    """A blank as a variable; one without a default must be given where it is required."""
    return quoting.assignment(blank.name, blank.default, (blank.what or "must be given") if required else "")


def _exported(variable: Variable) -> Written:
    return quoting.export(variable.name, variable.value)


def template(name: str) -> Any:
    """A template by file name."""
    return _environment().get_template(name)
