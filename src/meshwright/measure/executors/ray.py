"""Trials as jobs of a Ray cluster (extra ``ray``): handed over by its job API, one node each; Ray queues for their devices."""

from __future__ import annotations

import json
import shlex
import shutil
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from meshwright.errors import fault
from meshwright.measure.executors import keeper
from meshwright.measure.executors.base import Ended, Handle, Phase, State
from meshwright.measure.executors.processes import MARK
from meshwright.measure.trial import OUTPUT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from meshwright.measure.trial import Trial

PHASES: Mapping[str, Phase] = {"PENDING": "waiting", "RUNNING": "running"}
"""What Ray calls a job that has not ended."""


class Ray:
    """Jobs of the cluster that ``RAY_ADDRESS`` names."""

    name = "ray"
    at_once = 4

    def __init__(self) -> None:
        self._client: Any = None

    def check(self, trials: Sequence[Trial]) -> None:
        """Refuse where Ray is not installed or does not answer, and trials of several nodes."""
        if find_spec("ray") is None:
            raise fault("ray.missing", "needs Ray, which is not installed: pip install 'meshwright[ray]'", path="--executor")
        nodes = max((trial.nodes for trial in trials), default=1)
        if nodes > 1:
            raise fault("ray.nodes", "the layouts need {nodes} nodes, and a job of Ray starts its command on one: "
                        "--executor slurm or ssh", path="--executor", nodes=nodes)
        self._jobs()

    def describe(self, trial: Trial) -> str:
        """As its own command line would hand it over."""
        devices = f" --entrypoint-num-gpus {trial.devices}" if trial.accelerators else f" --entrypoint-num-cpus {trial.devices}"
        return f"ray job submit --working-dir .{devices} -- {shlex.join(trial.command)}"

    def submit(self, trial: Trial, folder: Path, mark: str, *, avoid: Sequence[str] = ()) -> Handle:
        """Hand a trial over, with its folder, under a keeper."""
        asked = {"command": list(trial.command), "environment": {**trial.environment, MARK: mark}, "grace_s": trial.limits.grace_s,
                 "alone": True, "prints": True}
        (folder / "keeper.json").write_text(json.dumps(asked), encoding="utf-8")
        shutil.copyfile(keeper.__file__, folder / "keeper.py")
        devices = {"entrypoint_num_gpus": trial.devices} if trial.accelerators else {"entrypoint_num_cpus": trial.devices}
        said = self._jobs().submit_job(
            entrypoint="python3 -I -S keeper.py .", submission_id=f"{trial.name}-{mark}", metadata={"mark": mark},
            runtime_env={"working_dir": str(folder)}, **devices,
        )
        return str(said)

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """As Ray says it."""
        jobs = self._jobs()
        return {handle: State(phase=PHASES.get(str(jobs.get_job_status(handle).value), "ended")) for handle in handles}

    def cancel(self, handle: Handle, grace_s: float) -> None:
        """Ray asks, then kills."""
        self._jobs().stop_job(handle)

    def adopt(self, folder: Path, mark: str, handle: Handle | None) -> Handle | None:
        """The job by its name or by its mark."""
        found = {str(each.submission_id): (each.metadata or {}).get("mark") for each in self._jobs().list_jobs()}
        if handle is not None:
            return handle if handle in found else None
        return next((name for name, known in found.items() if known == mark), None)

    def collect(self, handle: Handle, folder: Path) -> Ended:
        """Its output, and how Ray says that it ended."""
        jobs = self._jobs()
        (folder / OUTPUT).write_text(jobs.get_job_logs(handle), encoding="utf-8", errors="replace")
        info = jobs.get_job_info(handle)
        state, code = str(info.status.value), info.driver_exit_code
        duration_s = (info.end_time - info.start_time) / 1000 if info.end_time and info.start_time else None
        return Ended(exit_status=0 if state == "SUCCEEDED" else 1 if code is None else int(code), said=str(info.message or ""),
                     cause="cancelled" if state == "STOPPED" else "", duration_s=duration_s)

    def _jobs(self) -> Any:
        """The client of the job API.

        Errors:  InputError where no cluster answers.
        """
        if self._client is None:
            try:
                self._client = import_module("ray.job_submission").JobSubmissionClient()
            except Exception as error:  # whatever Ray has to say of an address that does not answer
                said = str(error).strip().splitlines()[:1] or [type(error).__name__]
                raise fault("ray.silent", "no cluster of Ray answers (RAY_ADDRESS): {said}", path="--executor",
                            said=said[0]) from None
        return self._client
