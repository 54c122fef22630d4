"""Ends commands while they write, and looks what the next start finds.

``python -m benchmarks.kills [--draws N] [--seed S] [--fork] [--write]``. Each draw makes a folder anew, runs a command that writes
into it, ends it (SIGKILL, SIGTERM, a full disk), starts another command in that folder, and compares what is there with what was
before and with what the whole command writes. Moments are drawn: the n-th call that changes the disk, in a process that counts
them before it calls ``meshwright.cli.main``; or so long after the writer has begun, in a process that knows nothing of it. A full
disk is a file system of its own in memory with so many free pages, where this user may mount one; elsewhere every call from the
n-th on that needs room says that there is none. ``--fork``: what is ended is a copy of this process in place of a new one, and what
is not is this process itself: quicker. ``--write``: docs/kills.md.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.failing_disk import NEVER, failing, leftovers, picture

DOC = Path(__file__).parent.parent / "docs" / "kills.md"
HOWS = ("SIGKILL", "SIGTERM", "full disk")
MODEL = ("llama3-8b", "--device", "h100-sxm", "--sequence", "4096")
TEMPLATES = (("mds", "1", "64", "megatron-deepspeed"), ("picotron", "2", "64", "picotron"), ("other", "2", "32", "picotron"))
"""Plans that stand in folders before: folder, nodes, global batch, framework."""
PAGE, SIZE = 4096, 64 * 2**20
TIMED = 0.25
"""Share of the kills that are timed from outside."""
LONGEST_S = 0.03
"""From the moment when the writer is seen to have begun."""
RUNS = """\
id,status,task,framework,model,gpu,n_gpus,precision,seq,gbs,mbs,tp,pp,dp,zero,recompute,step_time_s
a-1,ok,pretrain,megatron,llama3-8b,h100-sxm,8,bf16,4096,64,1,1,1,8,1,full,3.9
a-2,ok,pretrain,megatron,llama3-8b,h100-sxm,8,bf16,4096,64,1,2,1,4,1,none,3.4
a-3,ok,pretrain,megatron,llama3-8b,h100-sxm,8,bf16,4096,128,1,2,1,4,1,none,6.7
"""


@dataclass(frozen=True)
class Scene:
    """A command that writes, and the folder in which it is started."""

    verb: str
    name: str
    make: Callable[[Path, Path], None]
    """From a folder of templates, in the new one."""
    words: tuple[str, ...]
    start: str = "."
    """Where the next command is started."""


def _saved(templates: Path, name: str, root: Path, to: str) -> None:
    shutil.copytree(templates / name, root / to)


def _scripts(templates: Path, root: Path) -> None:
    """Two files of one configuration: one behind a link in another folder, one with two names."""
    (root / "real").mkdir()
    (root / "shared").mkdir()
    shutil.copy(templates / "mds" / "train.sh", root / "real" / "train.sh")
    (root / "train.sh").symlink_to("real/train.sh")
    shutil.copy(templates / "mds" / "ds_config.json", root / "ds_config.json")
    (root / "shared" / "ds_config.json").hardlink_to(root / "ds_config.json")


def _calibration(twice: bool) -> Callable[[Path, Path], None]:
    def make(templates: Path, root: Path) -> None:
        shutil.copy(templates / "runs.csv", root / "runs.csv")
        if twice:
            (root / "mine.json").write_text("{}\n")
            (root / "same.json").hardlink_to(root / "mine.json")

    return make


def _before_export(templates: Path, root: Path) -> None:
    _before_new_export(templates, root)
    _saved(templates, "exported", root, "out")
    shutil.rmtree(root / "out" / "probe")  # it is made again, among files that are there


def _before_new_export(templates: Path, root: Path) -> None:
    shutil.copy(templates / "picotron" / "plan.yaml", root / "plan.yaml")


FIX = ("fix", "train.sh", "ds_config.json", "--from", "megatron-deepspeed", "--model", "llama3-8b", "--device", "h100-sxm",
       "--faster", "1%", "--max-edits", "2", "--apply")
PLAN = ("plan", *MODEL, "--nodes", "2", "--global-batch", "128", "--no-balance", "--save", "out")
EXPORT = ("export", "plan.yaml", "--to", "picotron", "--out", "out")
CALIBRATE = ("calibrate", "--runs", "runs.csv", "--version", "1", "--out", "mine.json")
SCENES = (
    Scene("plan --save", "a new folder", lambda _, root: None, PLAN),
    Scene("plan --save", "over another plan", lambda templates, root: _saved(templates, "mds", root, "out"),
          (*PLAN, "--force"), start="out"),
    Scene("export", "a new folder", _before_new_export, EXPORT),
    Scene("export", "over other files", _before_export, (*EXPORT, "--force"), start="out"),
    Scene("calibrate", "a new file", _calibration(twice=False), CALIBRATE),
    Scene("calibrate", "over a file with two names", _calibration(twice=True), (*CALIBRATE, "--force")),
    Scene("fix --apply", "two scripts, a link, two names", _scripts, FIX),
)


# Processes.


def child(words: list[str], *, root: Path, at: int = NEVER, how: str = "SIGKILL", counted: Path | None = None) -> int:
    """Run one command line in this process, which fails at the ``at``-th call below a folder."""
    from meshwright.cli import main

    with failing(at, how, below=str(root)) as disk:
        status = main(words)
    if counted is not None:
        counted.write_text(str(disk.count))
    return status


@dataclass(frozen=True)
class Starter:
    """How commands are started: as new processes, or as copies of this one."""

    fork: bool

    def start(self, words: Sequence[str], cwd: Path, said: Path, **how: str | int | Path) -> int:
        """Start a command (with ``at``, one that counts its calls) -> its process."""
        process = os.fork()
        if process:
            return process
        status = 70
        try:
            os.chdir(cwd)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), 2)
            texts = {name: str(value) for name, value in how.items()}
            if self.fork:
                status = _called(list(words), texts)
            inner = ["benchmarks.kills", "--child", repr(texts), "--"] if how else ["meshwright"]
            top = Path(__file__).parent.parent
            paths = os.pathsep.join(filter(None, [str(top / "src"), str(top), os.environ.get("PYTHONPATH")]))
            if not self.fork:
                os.execve(sys.executable, [sys.executable, "-m", *inner, *words], os.environ | {"PYTHONPATH": paths})
        finally:
            sys.stderr.flush()
            os._exit(status)

    def run(self, words: Sequence[str], cwd: Path, said: Path, **how: str | int | Path) -> int:
        """Start a command and wait -> its exit status, negative for the signal that ended it."""
        if self.fork and "at" not in how:
            return _here(list(words), cwd, said, {name: str(value) for name, value in how.items()})
        return os.waitstatus_to_exitcode(os.waitpid(self.start(words, cwd, said, **how), 0)[1])


def _here(words: list[str], cwd: Path, said: Path, how: dict[str, str]) -> int:
    """A command line in this process, with its streams and its folder for as long as it takes."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    before = Path.cwd()
    with Path(os.devnull).open("wb") as null, said.open("wb") as stream:
        os.dup2(null.fileno(), 1)
        os.dup2(stream.fileno(), 2)
        try:
            os.chdir(cwd)
            return _called(words, how)
        finally:
            os.chdir(before)
            sys.stdout.flush()
            sys.stderr.flush()
            for number, handle in enumerate(kept, start=1):
                os.dup2(handle, number)
                os.close(handle)


def _called(words: list[str], how: dict[str, str]) -> int:
    """A command line in this process, with or without a failing disk."""
    if not how:
        from meshwright.cli import main

        return main(words)
    counted = Path(how["counted"]) if "counted" in how else None
    return child(words, root=Path(how["root"]), at=int(how.get("at", NEVER)), how=how.get("how", "SIGKILL"), counted=counted)


# Draws.


@dataclass(frozen=True)
class Known:
    """What a scene looks like before and after, and how many calls lie between."""

    before: dict[str, object]
    after: dict[str, object]
    calls: int
    pages: int
    """Of the files that are written, and some."""


@dataclass(frozen=True)
class Outcome:
    """What became of one draw."""

    scene: Scene
    how: str
    moment: str
    amid: bool
    """Whether something unfinished was left: the next start, or the next writer, had something to do."""
    files: str
    """``old``, ``new`` or ``mixed``, after the next start."""
    status: int
    line: str
    again: str
    """Why the command could not be repeated; empty where it could, or was not."""


class Bench:
    """A folder of templates, and what every scene is known to be."""

    def __init__(self, place: Path, starter: Starter, mounted: bool) -> None:
        """``mounted``: a full disk is a real one."""
        self.place, self.starter, self.mounted = place, starter, mounted
        self.templates, self.root, self.said, self.counted = (place / name for name in ("templates", "root", "said", "counted"))
        self.known: dict[Scene, Known] = {}
        self.templates.mkdir()
        for name, nodes, batch, framework in TEMPLATES:
            self._must(("plan", *MODEL, "--nodes", nodes, "--global-batch", batch, "--no-balance", "--framework", framework,
                        "--save", name), self.templates)
        self._must(["export", "other", "--to", "picotron", "--out", "exported"], self.templates)
        (self.templates / "runs.csv").write_text(RUNS)

    def _must(self, words: Sequence[str], where: Path) -> None:
        if self.starter.run(words, where, self.said):
            raise SystemExit(f"{' '.join(words)}: {self.said.read_text()}")

    def fresh(self, scene: Scene) -> None:
        """The folder of a scene, made anew."""
        if self.root.exists():
            shutil.rmtree(self.root)
        self.root.mkdir()
        scene.make(self.templates, self.root)

    def learn(self, scene: Scene) -> Known:
        """Run the whole command once."""
        if scene not in self.known:
            self.fresh(scene)
            before = picture(self.root)
            if self.starter.run(scene.words, self.root, self.said, root=self.root, counted=self.counted):
                raise SystemExit(f"{' '.join(scene.words)}: {self.said.read_text()}")
            after = picture(self.root)
            assert before != after and not leftovers(self.root), scene
            sizes = [len(about[0]) for name, about in after.items() if isinstance(about, tuple) and about != before.get(name)]
            self.known[scene] = Known(before, after, int(self.counted.read_text()), sum(-(-size // PAGE) for size in sizes) + 3)
        return self.known[scene]

    def draw(self, scene: Scene, how: str, rng: random.Random) -> Outcome:
        """End the command at a drawn moment, start another one, and compare."""
        known = self.learn(scene)
        with ExitStack() as stack:
            if how == "full disk" and self.mounted:
                self.root.mkdir(exist_ok=True)
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", self.root], check=True)
                stack.callback(subprocess.run, ["umount", "-l", self.root], check=True)
                scene.make(self.templates, self.root)
            else:
                self.fresh(scene)
            at = rng.randint(1, known.calls)
            if how != "full disk" and rng.random() < TIMED:
                delay_s = rng.uniform(0.0, LONGEST_S)
                moment, status = f"{1000 * delay_s:.1f} ms", self._timed(scene, how, delay_s)
            elif how != "full disk":
                moment = f"call {at} of {known.calls}"
                status = self.starter.run(scene.words, self.root, self.said, root=self.root, at=at, how=how)
            elif self.mounted:
                pages = rng.randint(0, known.pages)
                moment, status = f"{pages} of {known.pages} pages", self._filled(scene, pages)
            else:
                moment = f"call {at} of {known.calls}"
                status = self.starter.run(scene.words, self.root, self.said, root=self.root, at=at, how="full")
            line = " ".join(self.said.read_text().split("\n")[:1])
            amid = bool(leftovers(self.root))
            start = self.root / scene.start
            self.starter.run(["catalog", "devices", "h100-sxm"], start if start.is_dir() else self.root, self.said)
            now = picture(self.root)
            files = "old" if now == known.before else "new" if now == known.after else "mixed"
            again = self._repeated(scene, known) if files == "old" and rng.random() < TIMED else ""
            return Outcome(scene, how, moment, amid, files, status, line, again)

    def _timed(self, scene: Scene, how: str, delay_s: float) -> int:
        """A signal from outside, so long after something of the writer is seen."""
        process = self.starter.start(scene.words, self.root, self.said)
        while True:
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if any(next(folder.glob(".meshwright-*"), None) for folder in (self.root, *self.root.glob("*/"))):
                break
            time.sleep(0.0002)
        time.sleep(delay_s)
        with suppress(ProcessLookupError):
            os.kill(process, getattr(signal, how))
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])

    def _filled(self, scene: Scene, pages: int) -> int:
        """The command on a disk with so many free pages."""
        free = os.statvfs(self.root)
        ballast = self.place / "root" / "ballast"
        with ballast.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, (free.f_bavail - pages) * free.f_frsize)
        try:
            return self.starter.run(scene.words, self.root, self.said)
        finally:
            ballast.unlink()

    def _repeated(self, scene: Scene, known: Known) -> str:
        """The same command once more, whole: nothing that was left is in its way, and nothing is left."""
        if self.starter.run(scene.words, self.root, self.said):
            return self.said.read_text()
        return "" if picture(self.root) == known.after and not leftovers(self.root) else "other files than of the first time"


def can_mount(place: Path) -> bool:
    """Whether this user may mount a file system."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    with TemporaryDirectory(dir=place) as name:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", name], check=False, capture_output=True)
        if done.returncode == 0:
            subprocess.run(["umount", name], check=True)
        return done.returncode == 0


def drawn(draws: int, seed: int, *, fork: bool) -> tuple[list[Outcome], bool]:
    """So many outcomes; every verb with every way to end as often as the next one. And whether disks were really full."""
    rng = random.Random(seed)
    verbs = list(dict.fromkeys(scene.verb for scene in SCENES))
    pairs = [(verb, how) for verb in verbs for how in HOWS]
    rng.shuffle(pairs)
    outcomes = []
    with TemporaryDirectory(prefix="meshwright-kills-") as name:
        place = Path(name).resolve()
        bench = Bench(place, Starter(fork), can_mount(place))
        for number in range(draws):
            verb, how = pairs[number % len(pairs)]
            scene = rng.choice([scene for scene in SCENES if scene.verb == verb])
            outcome = bench.draw(scene, how, rng)
            outcomes.append(outcome)
            where = f"{verb}, {scene.name}, {how} at {outcome.moment}"
            print(f"{number + 1}: {where}: {outcome.files} {outcome.again}", file=sys.stderr, flush=True)
    return outcomes, bench.mounted


# Words.


def report(outcomes: list[Outcome], seed: int, *, mounted: bool, fork: bool) -> str:
    """The page."""
    mixed = [each for each in outcomes if each.files == "mixed" or each.again]
    ended = [each for each in outcomes if each.how != "full disk"]
    full = [each for each in outcomes if each.how == "full disk"]
    disk = "a file system in memory with a drawn number of free pages" if mounted else "calls that need room fail from one on"
    process = "in a copy of the benchmark's process" if fork else "in a new process"
    drawn_calls, timed = (sum(word in each.moment for each in ended) for word in ("call", "ms"))
    in_time = f"{sum(each.status != 0 for each in ended)} of {len(ended)} ended the command, the others came late."
    rows = []
    for scene in SCENES:
        for how in HOWS:
            some = [each for each in outcomes if (each.scene, each.how) == (scene, how)]
            rows.append(f"| {scene.verb}, {scene.name} | {how} | {_counts(some)} |")
    reasons = sorted({each.line.rpartition(": ")[2] for each in full if each.status})
    return f"""\
# Commands that are ended while they write

Written by `python -m benchmarks.kills --write`: {len(outcomes)} draws with seed {seed}.
A folder is made anew; a command writes into it, {process}, and is ended; another command
(`catalog devices`) is started in that folder; and what is there is compared with what was there before and with what the whole
command writes: contents, modes, owners, links, and which names are one file.

- SIGKILL and SIGTERM: {drawn_calls} at a drawn call that changes the disk (a write is cut in half), {timed} from outside, up to
  {1000 * LONGEST_S:.0f} ms after the writer is seen to have begun. {in_time}
  What SIGTERM ends puts back by itself what it has begun, and leaves at most something to be swept; what SIGKILL ends leaves all
  of that to the next start.
- Full disk: {disk}. {sum(each.status != 0 for each in full)} of {len(full)} had not room enough, and said so in one line
  ({", ".join(reasons) or "none"}).
- In a quarter of the draws that ended with the old files the command was repeated whole: nothing was in its way, nothing was left.

**{len(mixed)} of {len(outcomes)} ended with anything but all old or all new files.**

| command | ended by | draws | ended it | left unfinished | old files | new files | mixed |
|---|---|---:|---:|---:|---:|---:|---:|
""" + "\n".join(rows) + "\n"


def _counts(outcomes: list[Outcome]) -> str:
    kinds = Counter(each.files for each in outcomes)
    ended, left = sum(each.status != 0 for each in outcomes), sum(each.amid for each in outcomes)
    return " | ".join(str(count) for count in (len(outcomes), ended, left, kinds["old"], kinds["new"], kinds["mixed"]))


def main() -> int:
    """Draw, print, and write the page where that is asked."""
    if "--child" in sys.argv:
        import ast

        return _called(sys.argv[sys.argv.index("--") + 1 :], ast.literal_eval(sys.argv[sys.argv.index("--child") + 1]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="default: drawn, and printed")
    parser.add_argument("--fork", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    print(f"seed {seed}", flush=True)
    outcomes, mounted = drawn(asked.draws, seed, fork=asked.fork)
    page = report(outcomes, seed, mounted=mounted, fork=asked.fork)
    print(page)
    if asked.write:
        DOC.write_text(page, encoding="utf-8")
    return int(any(each.files == "mixed" or each.again for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
