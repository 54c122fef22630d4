"""What was written here is read without a word about what was not understood, and what decides a layout is still told."""

from __future__ import annotations

import pytest

from meshwright.check.messages import TAKEN
from meshwright.frameworks import File, framework, frameworks
from meshwright.frameworks.settings import Given
from meshwright.testing import legal_plans
from meshwright.testing.promises import configuration, read_back

RELEASES = [f"{name}@{release}" for name in frameworks() for release in framework(name).releases or (framework(name).version,)]


@pytest.mark.parametrize("release", RELEASES)
def test_nothing_of_our_own_files_is_not_understood(release):
    for number, (case, layout) in enumerate(legal_plans(release, 2, seed=77)):
        files = framework(release).write(case, layout)
        reading = read_back(framework(release), case, files)
        told = [str(each) for each in reading.source.remarks if each.id not in TAKEN]
        if number == 0:  # and by somebody who says nothing of the case
            alone = framework(release).read(configuration(files), given=Given())
            told += [str(each) for each in alone.source.remarks if each.id not in TAKEN]
        assert not told, told


@pytest.mark.parametrize(("words", "named"), [
    ("--nnodes $NODES --log-dir $LOGS pretrain_gpt.py --micro-batch-size 1", {"$NODES"}),
    ("--nnodes 2 --master-addr=$HOST $HERE/pretrain_gpt.py --micro-batch-size $MB --save $OUT --load=$OUT/x", {"$MB"}),
    ("--nnodes 2 pretrain_gpt.py $EXTRA --micro-batch-size 1 --save $OUT", {"$EXTRA"}),
    ("--nnodes 2 pretrain_gpt.py --micro-batch-size 1 --swiglu --save $OUT $EXTRA", {"$OUT", "$EXTRA"}),
])
def test_what_may_decide_a_layout_is_told(words, named):
    text = f"mkdir -p $FOLDER\ntorchrun --nproc-per-node 8 {words}\n"
    reading = framework("megatron").read([File(path="run.sh", text=text)], given=Given())
    assert {each.values["name"] for each in reading.source.remarks if each.id == "shell.unknown"} == named


def test_a_variable_that_is_set_for_the_program_alone_decides_no_layout():
    text = 'env PYTHONPATH="$HERE" torchrun --nnodes 2 --nproc-per-node 8 pretrain_gpt.py --micro-batch-size 1\n'
    reading = framework("megatron").read([File(path="run.sh", text=text)], given=Given())
    assert not [each for each in reading.source.remarks if each.id == "shell.unknown"]
