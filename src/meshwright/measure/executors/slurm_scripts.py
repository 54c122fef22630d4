"""Scripts for ``sbatch`` that a person can read: of a trial, of an array of them, of an allocation that takes one after another."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from meshwright.measure.executors.kept import UNKEPT
from meshwright.measure.executors.processes import MARK
from meshwright.measure.trial import ENDED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from meshwright.measure.trial import Trial

SCRIPT, LOG, BODY = "job.sbatch", "output-slurm.log", "job.sh"
FIRST_PORT, PORTS = 20_000, 12_000
"""Ports below those that Linux gives to whoever asks for any."""
MOST_TASKS = 1000
"""Of an array: Slurm's MaxArraySize is 1001 unless the site says otherwise."""
LASTS = 4
"""Trials that an allocation has time for if each takes as long as it may; most take a tenth of that. Our judgement."""


class Kind(NamedTuple):
    """What trials ask of Slurm: those of one kind may share an array or an allocation."""

    nodes: int
    devices_per_node: int
    accelerators: bool

    @classmethod
    def of(cls, trial: Trial) -> Kind:
        """That of a trial."""
        return cls(trial.nodes, trial.devices_per_node, trial.accelerators)


def minutes_of(trials: Sequence[Trial]) -> int:
    """Time limit of a job that runs one of them: the watch over the trial is to end it, and Slurm only where nobody watches."""
    return max(1, *(math.ceil((each.limits.total_s + each.limits.grace_s) / 60.0) for each in trials))


def script_of(trial: Trial, mark: str, avoid: Sequence[str]) -> str:
    """The script of a trial: what it asks of Slurm, its environment, and its command."""
    lines = [*_wants(Kind.of(trial), trial.name, mark, minutes_of([trial]), LOG, avoid), "", body_of(trial, mark)]
    return "\n".join(["#!/bin/bash", *lines])


def array_of(names: Sequence[str], trials: Sequence[Trial], comment: str, avoid: Sequence[str]) -> str:
    """The script of trials of one kind as tasks of one job; each runs ``job.sh`` in its own folder beside that of the script.

    ``names``: of the folders.
    """
    wants = _wants(Kind.of(trials[0]), f"{len(trials)}-trials", comment, minutes_of(trials), "task-%a.log", avoid)
    listed = [f"  {shlex.quote(name)}  # {number}: {' '.join(each.label.split())}"
              for number, (name, each) in enumerate(zip(names, trials, strict=True))]
    return "\n".join([
        "#!/bin/bash", *wants, f"#SBATCH --array=0-{len(trials) - 1}", "", "# the folder of each task", "trials=(", *listed, ")",
        'cd "../${trials[$SLURM_ARRAY_TASK_ID]}" && exec bash job.sh', "",
    ])


def allocation_of(kind: Kind, comment: str, minutes: int, avoid: Sequence[str]) -> str:
    """The script of an allocation: trials are run in it one after another, each under a keeper of its own."""
    return "\n".join([
        "#!/bin/bash", *_wants(kind, "trials", comment, minutes, LOG, avoid), "",
        "# takes trials that are put into its inbox, each under a keeper of its own; gives the allocation back when none comes",
        "trap : TERM  # the trial ends first", 'python3 -I -S pilot.py "$PWD"', "",
    ])


def environment_of(trial: Trial, mark: str) -> Mapping[str, str]:
    """What a trial's command finds in its environment."""
    return {**together(trial), **trial.environment, MARK: mark, "MASTER_PORT": str(FIRST_PORT + crc32(mark.encode()) % PORTS)}


def together(trial: Trial) -> Mapping[str, str]:
    """Of a trial of several nodes: its steps end when a task of theirs fails. Slurm lets the others wait for it otherwise, and a
    failure would pass for a hang.

    Source:  srun(1), SLURM_KILL_BAD_EXIT.
    """
    return {"SLURM_KILL_BAD_EXIT": "1"} if trial.nodes > 1 else {}


def body_of(trial: Trial, mark: str) -> str:
    """What is run on the first node of a job."""
    return "\n".join([
        *(f"export {name}={shlex.quote(value)}" for name, value in environment_of(trial, mark).items()), "",
        f"# {shlex.join(command_of(trial))}",
        "# under a keeper, which ends all that it has started and notes in ended.json how it ended; its output is output.log",
        "trap : TERM  # the keeper ends first", 'python3 -I -S keeper.py "$PWD"',
        "# where the keeper was killed, nothing goes on without it",
        f'[ -e {ENDED} ] || {{ touch {UNKEPT}; exec python3 -I -S keeper.py --end "${MARK}"; }}', "",
    ])


def command_of(trial: Trial) -> tuple[str, ...]:
    """The command on the first node: one that does not reach the other nodes by itself is started on each of them."""
    if trial.nodes == 1 or trial.spreads:
        return trial.command
    each = 'export NODE_RANK="$SLURM_NODEID" MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"; exec "$@"'
    return ("srun", "--ntasks-per-node=1", "bash", "-c", each, "trial", *trial.command)


def _wants(kind: Kind, name: str, comment: str, minutes: int, log: str, avoid: Sequence[str]) -> list[str]:
    wants = [f"--job-name={name}", f"--comment={comment}", f"--nodes={kind.nodes}", "--ntasks-per-node=1", f"--time={minutes}",
             f"--output={log}", "--open-mode=append", "--no-requeue"]
    wants += [f"--gpus-per-node={kind.devices_per_node}", "--exclusive"] if kind.accelerators else [
        f"--cpus-per-task={kind.devices_per_node}"]
    wants += [f"--exclude={','.join(avoid)}"] if avoid else []
    return [f"#SBATCH {want}" for want in wants]
