"""Launches on Ascend: msrun, the variables that MindSpore and CANN read, and the dry run that shows a stage's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshwright.documents.quoting import yaml_text
from meshwright.frameworks.base import File, Options
from meshwright.frameworks.manual import Blank, Launch, Variable, launch_script, readme, template

if TYPE_CHECKING:
    from collections.abc import Mapping

    from meshwright.domain.case import Case
    from meshwright.domain.layout import Layout
    from meshwright.frameworks.manual import Manual

MSRUN = (
    'msrun --worker_num="$((NODES * DEVICES_PER_NODE))" --local_worker_num="$DEVICES_PER_NODE" --node_rank="$NODE"',
    '--master_addr="$MASTER_ADDR" --master_port="$MASTER_PORT" --log_dir="$HERE/msrun_log" --join=True --cluster_time_out=7200',
)
CONNECT_TIMEOUT_S = 7200
"""Seconds that a rank waits for the others to join: compiling and loading take minutes on many nodes (CANN default 120)."""


def mindspore_variables() -> tuple[Variable, ...]:
    """Variables of a MindSpore launch."""
    return (
        Variable(
            name="MS_ALLOC_CONF",
            value="enable_vmm:True",
            reason="virtual memory against fragments; all options in this one variable, comma separated",
        ),
        Variable(
            name="HCCL_CONNECT_TIMEOUT", value=str(CONNECT_TIMEOUT_S), reason="ranks that compile or load slowly are waited for"
        ),
        Variable(name="HCCL_DETERMINISTIC", value="false", reason="deterministic reductions are slower"),
    )


def fullest_stage(layout: Layout, options: Options) -> int:
    """The stage with the highest predicted memory; the first where there is no estimate."""
    return min(options.estimate.peak_stage, layout.pipeline_parallel - 1) if options.estimate is not None else 0


def msrun_files(
    case: Case, layout: Layout, options: Options, manual: Manual, *, document: Mapping[str, object], checkout: str, command: str
) -> tuple[File, ...]:
    """``config.yaml``, ``launch.sh`` and ``probe.sh`` that run a command of a checkout on it, and ``README.md``."""
    return (
        File(path="config.yaml", text=yaml_text(document)),
        launch_script(case, layout, options, manual, Launch(checkout=checkout, command=(*MSRUN, command))),
        simulation(layout, options, checkout, command, manual.blanks),
        readme(case, layout, options, manual),
    )


def simulation(layout: Layout, options: Options, checkout: str, command: str, blanks: tuple[Blank, ...]) -> File:
    """``probe.sh``: one stage's memory by MindSpore's simulation level, on one machine without the cluster.

    ``blanks`` are those of the launch script: the command names some of them.
    """
    values = {"layout": layout, "stage": fullest_stage(layout, options), "blanks": blanks, "checkout": checkout, "command": command}
    return File(path="probe.sh", text=template("mindspore_probe.sh.j2").render(values), executable=True)


def simulation_words(layout: Layout, options: Options, before: str, *, mock: bool) -> str:
    """What a README says about ``probe.sh``; ``before`` sets what it needs."""
    stage = fullest_stage(layout, options)
    words = (
        f"`{before} bash probe.sh` runs the fullest stage ({stage}) by itself at MindSpore's simulation level, "
        "without the cluster (MindSpore "
        "2.5 or later). Read `Used peak memory usage (without fragments)`, in MiB, add what the communicators take, and give it "
        f"as bytes to `meshwright estimate --request plan.yaml --anchor-memory {stage}=BYTES`. `STAGE=k` shows another stage."
    )
    return words + (" A PyNative script must use `mindspore.utils.dryrun.mock` where it reads values of tensors." if mock else "")
