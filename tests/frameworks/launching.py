"""Launch scripts run as their README says, on machines that are pretended: a batch system of bash, launchers that only note.

``sbatch`` runs a copy of the script, as Slurm does, and ``srun`` its command once a node, each with the variables that Slurm sets.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hostile_scripts import REAL, calls
from markdown_it import MarkdownIt

LAUNCHERS = ("accelerate", "deepspeed", "llamafactory-cli", "make", "megatron", "msrun", "python", "python3", "torchrun")
NOTED = ("RANK", "WORLD_SIZE", "LOCAL_MASTER_ADDR", "GPUS_PER_NODE", "PYTHONPATH", "RANK_ID", "RANK_SIZE", "NGPU", "NNODES",
         "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What frameworks take from the environment instead of their arguments."""
_NOTE = f"""#!/bin/bash
{{
  printf '%s\\0' "PWD=$PWD"
  for name in {' '.join(NOTED)}; do printf '%s\\0' "$name=${{!name-}}"; done
  printf '%s\\0' "${{0##*/}}" "$@"; printf '\\n\\0'
}} >> "$NOTES"
echo "Used peak memory usage (without fragments)"
"""
_SBATCH = """#!/bin/bash
set -eu
nodes=$(grep -oE '^#SBATCH --nodes=[0-9]+' "$1"); nodes="${nodes##*=}"
export SLURM_JOB_ID=7 SLURM_SUBMIT_DIR="$PWD" SLURM_JOB_NUM_NODES="$nodes" SLURM_JOB_NODELIST="host[0-$((nodes - 1))]"
cat "$1" > "$SPOOL/slurm_script"; shift
bash "$SPOOL/slurm_script" "$@"
"""
_SRUN = """#!/bin/bash
set -eu
nodes=1
while [[ "$1" == --* ]]; do
  if [[ "$1" == --nodes ]]; then nodes="$2"; fi
  shift 2
done
[[ "$nodes" == "$SLURM_JOB_NUM_NODES" ]]
for ((node = 0; node < nodes; node++)); do SLURM_NODEID="$node" SLURM_PROCID="$node" "$@"; done
"""
_SCONTROL = """#!/bin/bash
[[ "$1 $2 $3" == "show hostnames $SLURM_JOB_NODELIST" ]] || exit 1
for ((node = 0; node < SLURM_JOB_NUM_NODES; node++)); do echo "host$node"; done
"""
_RUN = """
programs="$1"; export SPOOL="$2"
while IFS= read -r -d '' folder && IFS= read -r -d '' NOTES && IFS= read -r -d '' command; do
  export NOTES
  { cd "$folder" && PATH="$programs" bash -c "$command"; } > "$NOTES.out" 2>&1 < /dev/null
  echo "$?" > "$NOTES.status"
done
"""


@dataclass(frozen=True)
class Call:
    """One program that was started: its words, the folder it was started in, and what it finds in the environment."""

    words: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Rendezvous:
    """How the launcher of one node finds the others."""

    nodes: int
    devices: int
    """Of a node."""
    node: int
    host: str
    port: str
    program: tuple[str, ...]
    """What every process runs."""


def pretended(folder: Path) -> Path:
    """A folder of the pretended programs, and of the few that scripts really need."""
    folder.mkdir()
    for name in REAL:
        found = next(place for place in (Path("/usr/bin"), Path("/bin"), Path("/usr/local/bin")) if (place / name).exists())
        (folder / name).symlink_to(found / name)
    for name, text in {**dict.fromkeys(LAUNCHERS, _NOTE), "sbatch": _SBATCH, "srun": _SRUN, "scontrol": _SCONTROL}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run_commands(commands: Iterable[tuple[Path, Path, str]], programs: Path, spool: Path) -> None:
    """Every (folder, notes, command), one after the other, from one bash."""
    given = "".join(f"{folder}\0{notes}\0{command}\0" for folder, notes, command in commands)
    subprocess.run(["bash", "-c", _RUN, "run", str(programs), str(spool)], input=given, text=True, check=True, timeout=120,
                   env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"})


def called(notes: Path) -> list[Call]:
    """What a command started."""
    count = 1 + len(NOTED)
    return [
        Call(tuple(words[count:]), words[0].removeprefix("PWD="), dict(each.split("=", 1) for each in words[1:count]))
        for words in calls(notes)
    ]


def printed_commands(readme: str) -> list[tuple[str, str]]:
    """Where and what, of the table of a README that says how to run."""
    cells = [
        [child.content for child in token.children or () if child.type in {"text", "code_inline"}]
        for token in MarkdownIt("commonmark").enable("table").parse(readme.partition("## Run")[2].partition("\n## ")[0])
        if token.type == "inline"
    ]
    rows = [" ".join(cell) for cell in cells if cell]
    pairs = list(zip(rows[::2], rows[1::2], strict=False))
    return [(where, command) for where, command in pairs if ((where, command) != ("where", "command") and "bash" in command)
            or "sbatch" in command]


def printed_code(readme: str) -> Iterator[str]:
    """Every piece of code in a README."""
    for token in MarkdownIt("commonmark").enable("table").parse(readme):
        yield from (child.content for child in token.children or () if child.type == "code_inline")


def filled(command: str, node: int, place: Path) -> str:
    """A printed command with its placeholders filled in as somebody would."""
    command = re.sub(r"<0\.\.\d+>", str(node), command.replace("<first node>", "host0"))
    command = re.sub(r"/path/to/([\w.-]+)", lambda found: shlex.quote(str(place / found[1])), command)
    return re.sub(r"=\.\.\.(?= )", "=something", command)


def rendezvous(call: Call) -> Rendezvous:
    """What a launcher was told, in the words of each."""
    name, words = call.words[0], call.words
    if name == "torchrun":
        said = dict(zip(words[1:11:2], words[2:11:2], strict=True))
        return Rendezvous(int(said["--nnodes"]), int(said["--nproc-per-node"]), int(said["--node-rank"]), said["--master-addr"],
                          said["--master-port"], words[11:])
    if name == "msrun":
        said = dict(word.split("=", 1) for word in words[1:] if word.startswith("--") and "=" in word)
        devices = int(said["--local_worker_num"])
        start = next(index for index, word in enumerate(words[1:], 1) if not word.startswith("--"))
        return Rendezvous(int(said["--worker_num"]) // devices, devices, int(said["--node_rank"]), said["--master_addr"],
                          said["--master_port"], words[start:])
    if name == "accelerate":
        assert words[1:3] == ("launch", "--config_file")
        said = dict(zip(words[4:10:2], words[5:10:2], strict=True))
        config = dict(line.split(": ", 1) for line in Path(words[3]).read_text().splitlines() if re.match(r"num_\w+: ", line))
        nodes = int(config["num_machines"])
        return Rendezvous(nodes, int(config["num_processes"]) // nodes, int(said["--machine_rank"]), said["--main_process_ip"],
                          said["--main_process_port"], words[10:])
    there = call.environment
    if name in {"llamafactory-cli", "megatron"}:
        return Rendezvous(int(there["NNODES"]), int(there["NPROC_PER_NODE"]), int(there["NODE_RANK"]), there["MASTER_ADDR"],
                          there["MASTER_PORT"], words[2:])
    assert name == "python", words
    return Rendezvous(int(there["WORLD_SIZE"]), int(there["GPUS_PER_NODE"]), int(there["RANK"]), there["LOCAL_MASTER_ADDR"], "",
                      words[1:])
