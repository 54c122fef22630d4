"""Slurm's commands as far as the executor uses them, over processes of this machine: jobs are the scripts, run as they stand."""

import os
import re
import signal
import subprocess
from contextlib import suppress

from meshwright.measure.executors.keeper import _below


class PretendedSlurm:
    """Takes the place of ``slurm_asking.asked``; ``end`` it behind a test.

    ``room``: how many jobs run at a time; the others wait.
    """

    def __init__(self, room=1000):
        self.jobs, self.cancelled, self.scripts, self.room, self.queue = {}, set(), [], room, {}

    def __call__(self, *words, cwd=None):
        found = getattr(self, words[0])(*words[1:], cwd=cwd)
        while self.queue and sum(process.poll() is None for process, _ in self.jobs.values()) < self.room:
            name = next(iter(self.queue))
            script, place, own, comment = self.queue.pop(name)
            process = subprocess.Popen(["bash", str(script)], cwd=place, env={**os.environ, **own}, start_new_session=True,
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.jobs[name] = process, comment
        return found

    def sbatch(self, *words, cwd):
        text = (cwd / words[-1]).read_text()
        comment = re.search(r"--comment=(\S+)", text)[1]
        last = re.search(r"--array=0-(\d+)", text)
        number = str(len(self.scripts) + 1)
        self.scripts.append(text)
        for task in range(int(last[1]) + 1) if last else [None]:
            name = number if task is None else f"{number}_{task}"
            own = {} if task is None else {"SLURM_ARRAY_TASK_ID": str(task)}
            self.queue[name] = cwd / words[-1], cwd, own, comment
        return 0, f"{number}\n", ""

    def squeue(self, *_, cwd=None):
        running = [f"{name}|RUNNING|None|n1\n" for name, (process, _) in self.jobs.items() if process.poll() is None]
        return 0, "".join([*running, *(f"{name}|PENDING|Resources|\n" for name in self.queue)]), ""

    def scontrol(self, *words, cwd=None):
        wanted = words[3] if len(words) > 3 else None
        if wanted in self.cancelled and wanted not in self.jobs:
            return 0, f"JobId={wanted} JobState=CANCELLED Reason=None ExitCode=0:0 NodeList=(null)\n", ""
        if wanted is not None and wanted not in self.jobs:
            return 1, "", "Invalid job id specified"
        return 0, "".join(self._job(name) for name in ([wanted] if wanted else self.jobs)), ""

    def _job(self, name):
        process, comment = self.jobs[name]
        code = process.poll()
        state = "RUNNING" if code is None else "CANCELLED" if name in self.cancelled else "FAILED" if code else "COMPLETED"
        number, _, task = name.partition("_")
        array = f"ArrayJobId={number} ArrayTaskId={task} " if task else ""
        return f"JobId={number} {array}JobState={state} Reason=None ExitCode={code or 0}:0 NodeList=n1 Comment={comment}\n"

    def scancel(self, name, cwd=None):
        if self.queue.pop(name, None):
            self.cancelled.add(name)
            return 0, "", ""
        process, _ = self.jobs[name]
        if process.poll() is None:
            self.cancelled.add(name)
            for each in [process.pid, *_below(process.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGTERM)
        return 0, "", ""

    def end(self):
        self.queue.clear()
        for name, (process, _) in self.jobs.items():
            self.scancel(name)
            process.wait(timeout=20)
