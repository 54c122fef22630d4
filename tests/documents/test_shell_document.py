"""The shell reader against bash itself, on scripts written here; the editor against the reader."""

# ruff: noqa: E501, UP031
from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.documents.shell import MAX_BYTES, ShellDocument, parse_shell
from meshwright.documents.shell_edit import FlagEdit, replace_flags
from meshwright.errors import InputError

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="bash is the oracle")
STUBS = ("torchrun", "python", "deepspeed", "accelerate", "msrun", "srun", "mpirun")


@functools.cache
def sandbox() -> Path:
    """A directory whose programs print their arguments, each ended by NUL, and nothing else."""
    folder = Path(tempfile.mkdtemp(prefix="shell-oracle-"))
    for name in STUBS:
        program = folder / name
        program.write_text(f"#!{BASH}\nprintf '%s\\0' {name} \"$@\" >&9\nprintf '\\1\\0' >&9\n")
        program.chmod(0o755)
    return folder


def oracle(script: str, *arguments: str) -> list[list[str]]:
    """What bash starts: the words of every stubbed program."""
    with tempfile.TemporaryDirectory() as work, (Path(work) / "log").open("w+b") as log:
        path = Path(work) / "script.sh"
        path.write_text(script)
        subprocess.run(
            [BASH or "bash", "-c", f'exec 9>&{log.fileno()}; exec "$0" "$@"', BASH or "bash", str(path), *arguments],
            cwd=work, env={"PATH": str(sandbox())}, pass_fds=[log.fileno()], stdin=subprocess.DEVNULL, capture_output=True,
            check=False, timeout=20,
        )
        log.seek(0)
        records = log.read().decode().split("\1\0")
    return [record.split("\0")[:-1] for record in records if record]


def words(document: ShellDocument) -> list[str | None]:
    return [word.text if word.known else None for word in document.launch.command.words]


def launched(document: ShellDocument) -> list[list[str]]:
    return [[word.text for word in command.words] for command in document.commands if command.words[0].text in STUBS]


CONSTRUCTS = {
    "variables": "TP=8\nPP=$TP\ntorchrun x.py --tp $TP --pp ${PP} --name run-$TP-${PP}x\n",
    "arrays": 'A=(--a 1)\nA+=(--b "2 3")\nA+=(${NONE:-})\ntorchrun x.py "${A[@]}" ${A[*]} "${A[*]}" ${#A[@]} ${A[1]} "${A[@]:1:2}"\n',
    "array comments": "A=(\n  --a 1 # one\n  # --b 2\n\n  --c 3\n)\ntorchrun x.py ${A[@]}\n",
    "continuations": 'torchrun \\\n   x.py \\\n --a 1\\\n2 --b "x\\\ny" \\\n\n echo\n',
    "comment cuts": "torchrun x.py \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n",
    "space after backslash": "torchrun x.py --a 1 \\ \n  --b 2\n",
    "defaults": 'A=${X:-8} B=\nC=${B:-d} D=${B-d}\n: ${E:=5}\ntorchrun x.py ${A} ${C} "${D}" $E ${A:+yes} ${B:+no} "${F:-a b}" ${F:-a b}\n',
    "patterns": "P=/a/b.c/d.tar.gz\ntorchrun ${P##*/} ${P%%.*} ${P%.*} ${P#*/} ${P/b/X} ${P//a/Y} ${#P} ${P:1:3} ${P: -2} ${P^^} ${P%/*}\n",
    "arithmetic": "A=3 B=4\n((C=A*B))\nlet D=C+1\ntorchrun $((A*B)) $((A ** 2 + B%3)) $C $D $((A>2?10:20)) $((C/5)) $((-7/2)) $[A+B] $((C++)) $C $((0x1F))\n",
    "strings of flags": 'A=" --a 1 --b 2"\nB="${A} \\\n  --c 3 "\nC="--d\n 4"\ntorchrun x.py $A ${B} $C "$A"\n',
    "eval": 'D="--nnodes 2"\nO=" --a \\"x y\\" --b \'q\' "\nrun_cmd="torchrun $D x.py ${O} --c"\necho ${run_cmd}\neval ${run_cmd}\n',
    "conditions": 'A=x B=\nif [ $A = y ]; then C=1; elif [[ $A == x* && -z $B ]]; then C=2; else C=3; fi\n[ -n "$B" ] && D=1 || D=2\n'
    "[ 3 -gt 2 -a 1 -eq 1 ] && E=7\n[[ $A != z ]] || E=8\nif ! [ $A = x ]; then F=1; else F=2; fi\nif ((3>2)); then G=1; fi\n"
    "torchrun $C $D $E $F $G\n",
    "case": 'M=70b\ncase $M in 7b|8b) L=32;; 7*b) L=80 ;; *) L=1;; esac\ncase "$L" in "80") K=a;; esac\ntorchrun $L $K\n',
    "functions": 'X=1\nf() { local X=$1; Y=$X; shift; torchrun "$@" $# $X; }\nf 2 a "b c"\ntorchrun $X $Y\n',
    "loops": 'for i in 1 2 {3..4} a{x,y}; do A+=" --i $i"; done\nB=\nfor ((j=0;j<3;j++)); do B=$B$j; done\nk=0; while [ $k -lt 3 ]; do k=$((k+1)); [ $k = 2 ] && continue; C+=($k); done\ntorchrun $A $B ${C[@]}\n',
    "prefix and export": "export A=1 B='2 3'\nC=4 torchrun x.py $A \"$B\" ${C:-}\n",
    "positional": 'torchrun $1 ${2:-x} ${3:-y} "$@" $#\nset -- p q\ntorchrun "$@" $2\nshift\ntorchrun $1\n',
    "quotes": 'A=\'a "b" $X\'\ntorchrun "$A" $\'t\\tn\\\'\' "q"r\'s\' "" \'\' a\\ b \\--flag "\\$A \\x" "`echo hi`" $(echo a  b)\n',
    "pipes": "nothing=1\ntime torchrun x.py --a 2>&1 1 > out | cat &\nwait\n(torchrun y.py >> /dev/null)\n{ torchrun z.py 2> e; }\n",
    "wrappers": "srun --nodes=2 python x.py --a 1\nmpirun -np 8 python y.py --b\n",
    "unset": 'A=1\nunset A\ntorchrun x.py "${A-gone}" $A end\n',
    "associative": 'declare -A M=([a]=1 [b]=2)\nM[c]=3\ntorchrun ${M[a]} ${M[c]} ${#M[@]}\nk=b\ntorchrun "${M[$k]}"\n',
    "indirect": "A=B\nB=7\ntorchrun ${!A}\n",
    "read from a pipe does not come back": "A=1\ntorchrun $A | A=2\n(A=3)\ntorchrun $A\n",
    "and or": "false || torchrun a\ntrue && torchrun b\nfalse && torchrun c || torchrun d\n",
    "unicode": "A='größe 8'\ntorchrun \"$A\" ü\n",
}


@needs_bash
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_each_construct_reads_as_bash_does(name: str) -> None:
    script = CONSTRUCTS[name]
    arguments = ("one", "two words") if name == "positional" else ()
    expected = oracle(script, *arguments)
    assert expected
    assert sorted(launched(parse_shell(script, arguments=arguments))) == sorted(expected)


_VALUES = st.text("ab1 -=_/.", min_size=0, max_size=6)
_NAMES = st.sampled_from(["A", "B", "C", "D"])


@st.composite
def _scripts(draw: st.DrawFn) -> str:
    """Assignments, arrays, defaults, conditions and continuations, then a launch that uses them."""

    def use() -> str:
        name = draw(_NAMES)
        forms = ["${%s:-%s}" % (name, draw(st.sampled_from(["d", "x y", ""]))), '"${%s:-q r}"' % name, '"${%s-}"' % name,
                 "$((3*${%s_N:-2}))" % name, '"${L[@]}"', "${L[@]}", "${#L[@]}", '"pre${%s:-}post"' % name, "'lit $x'",
                 "--f=${%s:-1}" % name, '${%s:+"a b"}' % name, "plain"]
        return draw(st.sampled_from(forms))

    lines = ["L=()", "A=1"]
    for _ in range(draw(st.integers(1, 7))):
        name, value = draw(_NAMES), draw(_VALUES)
        kind = draw(st.integers(0, 6))
        lines.append(
            [
                f'{name}="{value}"', f"{name}={use()}", f"L+=({use()} {use()})", f'{name}+=" {value} "',
                f'if [ "${{{name}:-}}" = "{value}" ]; then {name}=t; else L+=(e); fi', f"L=(\n {use()} # c\n  {use()}\n)",
                f"for i in {use()} x; do L+=(--i \"$i\"); done",
            ][kind]
        )
    gap = draw(st.sampled_from([" ", " \\\n   ", "\\\n "]))
    return "\n".join(lines) + "\ntorchrun x.py " + gap.join(use() for _ in range(draw(st.integers(1, 5)))) + "\n"


@needs_bash
@examples(80)
@given(_scripts())
def test_random_scripts_read_as_bash_does(script: str) -> None:
    assert launched(parse_shell(script)) == oracle(script)


def test_values_know_their_line_and_place() -> None:
    script = "TP=${TP:-8}\n# é\nO=' --b 2'\ntorchrun x.py --a $TP $O --c $TP --d \"3\"\n"
    document = parse_shell(script)
    data = script.encode()
    by_text = {word.text: word for word in document.launch.arguments}
    for word in document.launch.arguments:
        assert word.span is not None
        assert data[slice(*word.span)].decode() == word.text
    assert (by_text["8"].line, by_text["2"].line, by_text["3"].line) == (1, 3, 4)
    assert by_text["8"].shared
    assert not by_text["2"].shared
    assert not by_text["3"].shared


def test_what_only_running_could_tell_stays_unknown_and_is_named() -> None:
    script = "H=$(hostname)\ntorchrun x.py --h $H --n $SLURM_NNODES --tp $1 --x ${Q%%a} --ok 1\n"
    document = parse_shell(script)
    assert words(document) == ["torchrun", "x.py", "--h", None, "--n", None, "--tp", None, "--x", None, "--ok", "1"]
    remarks = [str(remark) for remark in document.remarks]
    for name in ("$(hostname) (line 1)", "SLURM_NNODES (line 2)", "1 (line 2)", "Q (line 2)"):
        assert any(name in remark for remark in remarks)
    given_all = parse_shell(script, arguments=["4"], environment={"SLURM_NNODES": "2", "Q": "ba"})
    assert words(given_all)[5::2] == ["2", "4", "b", "1"]


def test_the_real_environment_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "SECRET", "s3cret")
    assert words(parse_shell("torchrun x.py --a ${SECRET:-none} --b $SECRET\n"))[2:] == ["--a", "none", "--b", None]


def test_undecided_branches_are_merged_where_they_agree() -> None:
    script = "if [ -f data ]; then A=1; B=2; torchrun t.py --a $A; else A=1; B=3; torchrun e.py --a $A; fi\ntorchrun x.py --a $A --b $B\n"
    document = parse_shell(script)
    assert [command.words[1].text for command in document.commands] == ["t.py", "e.py", "x.py"]
    assert words(document)[2:] == ["--a", "1", "--b", None]
    assert {"shell.condition", "shell.undecided"} <= {remark.id for remark in document.remarks}
    leaves = parse_shell("A=1\nif [ ! -d data ]; then A=2; exit 1; fi\ntorchrun x.py --a $A\n")
    assert words(leaves)[-1] == "1"


def test_embedded_files_headers_source_and_environment() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node 8\n#SBATCH -N2\nexport CUDA_DEVICE_MAX_CONNECTIONS=1\nunset NCCL_DEBUG\n"
        "source env.sh\nMB=2\ncat <<EOF > ds.json\n{\"mb\": $MB}\nEOF\ncat <<'E2' > raw.json\n{\"mb\": $MB}\nE2\n"
        "OMP=3 srun python x.py --a 1\n"
    )
    document = parse_shell(script)
    assert document.embedded == {"ds.json": ('{"mb": 2}\n', 10), "raw.json": ('{"mb": $MB}\n', 13)}
    assert (document.launch.nodes, document.launch.devices_per_node) == (2, 8)
    assert {name: word and word.text for name, word in document.environment.items()} == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1", "NCCL_DEBUG": None, "OMP": "3",
    }
    assert "shell.source" in {remark.id for remark in document.remarks}


def test_a_file_given_beside_the_script_is_read_where_it_stands() -> None:
    beside = {"conf/sizes.sh": 'TP=${TP:-4}\nARGS=(--tp "$TP" --name "a b")\nreturn\nTP=8\n'}
    document = parse_shell('source "$(where)/sizes.sh"\ntorchrun x.py "${ARGS[@]}" --tp2 $TP --mb 2\n', files=beside)
    assert words(document) == ["torchrun", "x.py", "--tp", "4", "--name", "a b", "--tp2", "4", "--mb", "2"]
    assert document.read == ("conf/sizes.sh",) and not document.remarks
    assert replace_flags(document, [FlagEdit(key="--mb", values=("8",))]).endswith("--mb 8\n")
    with pytest.raises(InputError, match="change it by hand"):
        replace_flags(document, [FlagEdit(key="--tp", values=("8",))])
    with pytest.raises(InputError, match="nested files"):
        parse_shell("source a.sh\n", files={"a.sh": "source a.sh\n"})


def test_flags_behind_a_comment_do_not_reach_the_launch() -> None:
    document = parse_shell("torchrun x.py \\\n  --a 1 \\\n  # --b 2 \\\n  --c 3\n")
    assert words(document) == ["torchrun", "x.py", "--a", "1"]
    assert any(remark.id == "shell.cut" and remark.values["line"] == 4 for remark in document.remarks)


LAUNCHES = [
    ("torchrun --nproc_per_node 8 --nnodes=2 x.py --a 1", ("torchrun", "x.py", 2, 8, 2)),
    ("torchrun --standalone --nproc-per-node=4 -m pkg.train --a 1", ("torchrun", "pkg.train", None, 4, 2)),
    (
        "python -u -m torch.distributed.launch --use_env --nproc_per_node 8 x.py --a",
        ("torch.distributed.launch", "x.py", None, 8, 1),
    ),
    ("python3 -m torch.distributed.run --nnodes 1:4 x.py", ("torchrun", "x.py", None, None, 0)),
    ("deepspeed --num_gpus 8 --num_nodes 2 --hostfile h x.py --deepspeed", ("deepspeed", "x.py", 2, 8, 1)),
    ("accelerate launch --multi_gpu --num_machines 2 --num_processes 16 x.py --a", ("accelerate", "x.py", 2, 8, 1)),
    ("msrun --worker_num=16 --local_worker_num=8 --join=True x.py --config c.yaml", ("msrun", "x.py", 2, 8, 2)),
    ("srun --nodes=3 --gpus-per-node=gpu:h100:4 python x.py --a", ("python", "x.py", 3, 4, 1)),
    ("ray job submit --address=x --runtime-env-json='{}' -- python3 x.py --a 1", ("python", "x.py", None, None, 2)),
    ("srun -N 2 bash -c 'torchrun --nproc_per_node 8 x.py --a'", ("torchrun", "x.py", 2, 8, 1)),
    ("nohup env A=1 python x.py section.key=2 --b > log &", ("python", "x.py", None, None, 2)),
    ("bash other.sh 8 70b", ("bash", "other.sh", None, None, 2)),
    ("./pkg/train.py --a 1", ("python", "./pkg/train.py", None, None, 2)),
    ("A=1 python -m pkg.train --a", ("python", "pkg.train", None, None, 1)),
    (
        "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 128 ... --tp 8",
        ("torch.distributed.launch", None, 128, 8, 2),
    ),
]


@pytest.mark.parametrize(("script", "expected"), LAUNCHES)
def test_launch_styles(script: str, expected: tuple[object, ...]) -> None:
    document = parse_shell(script + "\n")
    launch = document.launch
    program = launch.program.text if launch.program else None
    assert (launch.launcher, program, launch.nodes, launch.devices_per_node, len(launch.arguments)) == expected
    assert ("shell.ellipsis" in {remark.id for remark in document.remarks}) == ("..." in script)


def test_the_launcher_wins_over_what_comes_after_it() -> None:
    document = parse_shell("torchrun x.py --a 1\npython plot.py --log x\necho done\n")
    assert document.launch.launcher == "torchrun"
    with pytest.raises(InputError, match="launches no training"):
        parse_shell("export A=1\n").launch  # noqa: B018


@pytest.mark.parametrize("line", ["echo x.py --a 1", "cat bash", "python -c 'import x'", "bash -n", "ls ./x.py"])
def test_what_only_names_a_program_launches_none(line: str) -> None:
    with pytest.raises(InputError, match="launches no training"):
        parse_shell(f"{line}\n").launch  # noqa: B018


HOSTILE = {
    "nul": "A=1\0\n",
    "large": "#" * (MAX_BYTES + 1),
    "doubling": "A=x\n" + 'A="$A$A"\n' * 60,
    "doubling array": "A=(x)\n" + 'A+=("${A[@]}")\n' * 60,
    "loops in loops": "for a in {1..9999}; do for b in {1..9999}; do A=$a$b; done; done\n",
    "recursion": "f() { f; f; }\nf\n",
    "eval of itself": 'A=\'eval "$A"\'\neval "$A"\n',
    "list": "for i in {1..100000}; do :; done\n",
}


@pytest.mark.parametrize(
    "line", ["shift " + "9" * 5000, "A[" + "9" * 5000 + "]=3", "X=$((" + "9" * 5000 + "+1))", "shift \u00b2", "[ ( ]"]
)
def test_odd_numbers_and_tests_leave_the_launch_alone(line: str) -> None:
    assert parse_shell(f"set -- a b\n{line}\ntorchrun --nnodes 1 --nproc_per_node 8 t.py --a 1\n").launch.nodes == 1


@pytest.mark.parametrize("name", HOSTILE)
def test_what_grows_without_bound_is_refused(name: str) -> None:
    with pytest.raises(InputError):
        parse_shell(HOSTILE[name])


@pytest.mark.parametrize(
    "script",
    [
        "(" * 10_000, "$(" * 10_000, '"${A:-' * 5000, "((" * 3000 + "1", "A=$((" + "(" * 5000, "{ " * 5000, "if " * 5000, "[[ " + "! " * 5000,
        "a" + " && a" * 10_000, "<<" * 1000, "`" * 999, "case x in " * 2000, "\\", "'", '"', "$", "${", "A=(", "\x7fELF\x01\x02", "while true; do A=1; done",
        "A=" + "$((" * 2000, "${A[${A[" * 1000, "f() " * 5000,
    ],
)
def test_broken_scripts_give_a_document_or_a_fault(script: str) -> None:
    try:
        document = parse_shell(script)
    except InputError as error:
        assert str(error)
    else:
        assert document.found is None or document.launch.command.words


@examples(100)
@given(
    st.lists(st.sampled_from([*"$({[]})\"'`;|&<>#\\ \n=A1!*-", "if ", "fi ", "do ", "done ", "then ", "for ", "in "]), max_size=60)
)
def test_no_text_is_a_traceback(pieces: list[str]) -> None:
    with contextlib.suppress(InputError):
        parse_shell("".join(pieces))


EDITED = """#!/bin/bash
# größe
TP=${TP:-8}
PP=2  # stays
NODES=4
EXTRA=" --lr 0.1 --mb 1 --clip $PP"
ARGS=(
    --layers 32   # comment
    --hidden "4096"
    --tp $TP
    --sp
)
if [ $NODES -gt 1 ]; then
    ARGS+=(--overlap)
fi
torchrun --nnodes $NODES train.py "${ARGS[@]}" $EXTRA \\
    --pp $PP \\
    --seq=4096 \\
    --save ckpt/$NODES \\
    --last 2>&1 | tee log
"""


def expected_words(document: ShellDocument, key: str, values: tuple[str, ...] | None) -> list[str | None]:
    """What the launch shall hold after one edit of a flag that is there."""
    before = words(document)
    start = next((i for i, word in enumerate(before) if word and word.partition("=")[0] == key), None)
    if start is None:
        return [*before, *([] if values is None else [key, *values])]
    if "=" in str(before[start]):
        return [*before[:start], *([] if values is None else [f"{key}={values[0]}"]), *before[start + 1 :]]
    end = start + 1
    while end < len(before) and not str(before[end]).startswith("--"):
        end += 1
    return [*before[:start], *([] if values is None else [key, *values]), *before[end:]]


FLAGS = ["--layers", "--hidden", "--tp", "--sp", "--overlap", "--lr", "--mb", "--clip", "--pp", "--seq", "--save", "--last"]


@examples(60)
@given(
    st.sampled_from(FLAGS),
    st.none() | st.tuples(st.sampled_from(["1", "16", "a,b", "Et*3|(tt|)*2L", "x$y"])),
)
def test_after_an_edit_the_launch_reads_as_intended(flag: str, values: tuple[str, ...] | None) -> None:
    document = parse_shell(EDITED)
    after = parse_shell(replace_flags(document, [FlagEdit(key=flag, values=values)]))
    assert words(after) == expected_words(document, flag, values)
    assert after.commands[-1].environment.keys() == document.commands[-1].environment.keys()


@needs_bash
@pytest.mark.parametrize("values", [("9",), ("a b",), ("'",), ('"$x`',), ("",), ("x", "y")])
@pytest.mark.parametrize("flag", ["--hidden", "--pp", "--new"])
def test_bash_agrees_with_the_edit(flag: str, values: tuple[str, ...]) -> None:
    document = parse_shell(EDITED)
    text = replace_flags(document, [FlagEdit(key=flag, values=values)])
    assert oracle(text)[0] == words(parse_shell(text))
    found = oracle(text)[0]
    assert found[found.index(flag) + 1 : found.index(flag) + 1 + len(values)] == list(values)


def lines_changed(before: str, after: str) -> tuple[list[str], list[str]]:
    old, new = before.split("\n"), after.split("\n")
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("edit", "gone", "come"),
    [
        (FlagEdit(key="--tp", values=("4",)), ["TP=${TP:-8}"], ["TP=${TP:-4}"]),
        (FlagEdit(key="--hidden", values=("5120",)), ['    --hidden "4096"'], ['    --hidden "5120"']),
        (FlagEdit(key="--pp", values=("4",)), ["    --pp $PP \\"], ["    --pp 4 \\"]),
        (FlagEdit(key="--seq", values=("8192",)), ["    --seq=4096 \\"], ["    --seq=8192 \\"]),
        (FlagEdit(key="--sp", values=None), ["    --sp"], []),
        (FlagEdit(key="--layers", values=None), ["    --layers 32   # comment"], []),
        (FlagEdit(key="--pp", values=None), ["    --pp $PP \\"], []),
        (FlagEdit(key="--mb", values=None), ['EXTRA=" --lr 0.1 --mb 1 --clip $PP"'], ['EXTRA=" --lr 0.1 --clip $PP"']),
        (FlagEdit(key="--new", values=("1",), after="--sp"), [], ["    --new 1"]),
        (FlagEdit(key="--new", values=("1",), after="--layers"), [], ["    --new 1"]),
        (FlagEdit(key="--new", values=(), after="--pp"), [], ["    --new \\"]),
        (FlagEdit(key="--new", values=("1",), after="--lr"), ['EXTRA=" --lr 0.1 --mb 1 --clip $PP"'], ['EXTRA=" --lr 0.1 --new 1 --mb 1 --clip $PP"']),
        (FlagEdit(key="--new", values=("1",)), ["    --last 2>&1 | tee log"], ["    --last \\", "    --new 1 2>&1 | tee log"]),
        (FlagEdit(key="--save", values=("there",)), ["    --save ckpt/$NODES \\"], ["    --save there \\"]),
        (FlagEdit(key="--none", values=None), [], []),
    ],
)
def test_an_edit_touches_only_its_line(edit: FlagEdit, gone: list[str], come: list[str]) -> None:
    document = parse_shell(EDITED)
    assert lines_changed(EDITED, replace_flags(document, [edit])) == (gone, come)


def test_a_variable_that_feeds_two_flags_changes_when_both_change() -> None:
    document = parse_shell("N=2\ntorchrun x.py --a $N --b $N\n")
    both = [FlagEdit(key="--a", values=("4",)), FlagEdit(key="--b", values=("4",))]
    assert replace_flags(document, both) == "N=4\ntorchrun x.py --a $N --b $N\n"
    assert replace_flags(document, both[:1]) == "N=2\ntorchrun x.py --a 4 --b $N\n"


def test_edits_inside_evaluated_strings_and_with_carriage_returns() -> None:
    script = 'O=" \\\n  --a 1 \\\n  --b 2"\nrun="torchrun x.py ${O} --c 3"\neval $run\n'
    edits = [
        FlagEdit(key="--a", values=("7",)),
        FlagEdit(key="--b", values=None),
        FlagEdit(key="--d", values=("5",)),
        FlagEdit(key="--c", values=("4",)),
    ]
    text = replace_flags(parse_shell(script), edits)
    assert text == 'O=" \\\n  --a 7"\nrun="torchrun x.py ${O} --c 4 --d 5"\neval $run\n'
    windows = "A=1\r\ntorchrun x.py --a $A\r\n"
    assert replace_flags(parse_shell(windows), edits[:1]) == "A=7\r\ntorchrun x.py --a $A\r\n"


def test_a_value_in_a_loop_cannot_be_edited_in_place() -> None:
    document = parse_shell('for i in 1 2; do A+=" --x $i"; done\ntorchrun x.py $A\n', path="train.sh")
    with pytest.raises(InputError, match=r"train.sh: --x \(line 1\)"):
        replace_flags(document, [FlagEdit(key="--x", values=None)])


def test_overrides_are_edited_too() -> None:
    document = parse_shell("torchrun x.py \\\n  model.tp=8 \\\n  +model.pp=${PP:-2}\n")
    edits = [
        FlagEdit(key="model.tp", values=("4",)),
        FlagEdit(key="model.pp", values=("1",)),
        FlagEdit(key="model.cp", values=("2",)),
    ]
    assert replace_flags(document, edits) == "torchrun x.py \\\n  model.tp=4 \\\n  +model.pp=${PP:-1} \\\n  model.cp=2\n"
