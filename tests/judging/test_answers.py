"""What layouts answer to every question of the grid and to every rule that is about layouts: pure logic, no figure of the model.

The golden file has a row for each question or rule and case, with a bit (or two) for each drawn layout. After a wanted change:
``PYTHONPATH=src python tests/judging/test_answers.py --update-golden``, and read which rows of the diff are others.
"""

from __future__ import annotations

import random
import sys
from functools import cache
from pathlib import Path
from types import SimpleNamespace as Some

import pytest

from meshwright.domain.layout import Full, Layout, Mixed, NoRecompute, Overlap, Selective
from meshwright.judging import following
from meshwright.judging.following import ABLE, FOLLOWS, able, follows
from meshwright.judging.neighbours import OFF
from meshwright.judging.questions import columns_of_layouts, questions

GOLDEN = Path(__file__).parent / "golden" / "answers.txt"
SIZES = {"8B": 8e9, "10B": 10e9, "13B": 13e9, "50B": 50e9, "70B": 70e9, "100B": 100e9, "mixture": 30e9}


def layouts() -> list[Layout]:
    """A sample of all knobs, ends of the rules' ranges among them."""
    rng, found = random.Random(11), []
    while len(found) < 160:
        tp, pp, cp, ep, etp, dp = (
            rng.choice(each)
            for each in (
                (1, 1, 2, 3, 4, 8, 16, 32),
                (1, 1, 2, 8, 16, 17),
                (1, 1, 2, 8),
                (1, 1, 2, 8),
                (1, 1, 2),
                (1, 2, 4, 64, 512, 1024),
            )
        )
        stage = rng.randrange(4) if dp * cp > 1 else 0
        shards = [dp * cp if stage >= each else 1 for each in (1, 2, 3)]
        if stage == 1 and rng.random() < 0.5:
            shards[0] = 2
        found.append(
            Layout(
                tensor_parallel=tp,
                sequence_parallel=tp > 1 and rng.random() < 0.5,
                pipeline_parallel=pp,
                context_parallel=cp,
                expert_parallel=ep,
                expert_tensor_parallel=etp,
                data_parallel=dp,
                virtual_stages=rng.choice((1, 2, 3)) if pp > 1 else 1,
                schedule="1f1b",
                microbatch_sequences=rng.choice((1, 2, 3, 4, 8, 16, 18)),
                num_microbatches=rng.choice((1, 2, 8, 16, 17, 64)),
                optimizer_shards=shards[0],
                gradient_shards=shards[1],
                parameter_shards=shards[2],
                recompute=rng.choice((NoRecompute(), Selective(), Full(), Full(layers=1), Mixed(parts=((Full(), ((1,),)),)))),
                overlap=OFF
                if rng.random() < 0.3
                else Overlap(gradient_reduce=rng.random() < 0.5, parameter_gather=rng.random() < 0.3, tensor=rng.random() < 0.2),
            )
        )
    return found


def case(name: str) -> Some:
    return Some(
        cluster=Some(
            devices_per_node=8 if name != "13B" else 4,
            scale_up_devices=8 if name != "70B" else 72,
            num_nodes=8 if name != "8B" else 9,
        ),
        batch=Some(sequence_tokens=8192 if name != "10B" else 8191, global_batch_sequences=1024 if name != "50B" else 64),
        model=Some(is_moe=name == "mixture", size=SIZES[name]),
    )


@cache
def answers() -> dict[str, str]:
    """Row -> answers, in hexadecimal digits: questions a bit for a layout, rules two (none, no, yes); all of the first case."""
    every, found = layouts(), {}
    columns = columns_of_layouts(every)
    features = Some(
        zero_stages=(0, 1, 2, 3),
        partial_sharding=True,
        sequence_parallel=True,
        overlaps=("grad", "param"),
        context_parallel=True,
        expert_parallel=True,
        recompute=("none", "selective", "full"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "total_parameters", lambda model: model.size)
        patch.setattr(
            following, "running", lambda case, layout: Some(implementation=Some(flash_attention=layout.data_parallel > 4))
        )
        for name, size in SIZES.items():
            for question, mask in questions(case(name), int(size)).items():
                bits = "".join(str(int(each)) for each in mask(columns))
                found[f"{question} of {name}"] = f"{int(bits, 2):0{len(every) // 4}x}"
            for rule in FOLLOWS:
                said = [follows(rule, case(name), each, features) for each in every]
                bits = "".join({None: "00", False: "01", True: "10"}[each if each is None else bool(each)] for each in said)
                found[f"{rule} of {name}"] = f"{int(bits, 2):0{len(every) // 2}x}"
    first = next(iter(SIZES))
    return {
        row: value
        for row, value in found.items()
        if row.endswith(f" of {first}") or value != found.get(f"{row.rpartition(' of ')[0]} of {first}")
    }


def wanted() -> dict[str, str]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return {line.rpartition(": ")[0]: line.rpartition(": ")[2] for line in lines}


@pytest.mark.parametrize("name", SIZES)
def test_every_layout_answers_as_it_did(name: str) -> None:
    own = {row: value for row, value in answers().items() if row.endswith(f" of {name}")}
    assert own == {row: value for row, value in wanted().items() if row.endswith(f" of {name}")}


def test_every_answer_is_given_by_some_layout() -> None:
    """A question that all layouts answer alike would say nothing of the formula behind it."""
    by_question: dict[str, set[str]] = {}
    for row, value in answers().items():
        by_question.setdefault(row.rpartition(" of ")[0], set()).update(value)
    alike = {question for question, digits in by_question.items() if len(digits) == 1}
    assert alike <= {"any", "megatron.partition-activations", "playbook.data-parallel-bottleneck"}


def test_what_a_framework_lacks_it_cannot_follow() -> None:
    """By hand: the feature that each rule needs, taken away."""
    whole = {
        "zero_stages": (0, 1, 2, 3),
        "partial_sharding": True,
        "sequence_parallel": True,
        "overlaps": ("grad", "param"),
        "context_parallel": True,
        "expert_parallel": True,
        "recompute": ("none", "selective", "full"),
    }
    lacking = {
        "mindspore.distributed-optimizer": {"zero_stages": (0, 2, 3)},
        "mindspore.unsaturated-sharding": {"partial_sharding": False},
        "megatron.sequence-parallel": {"sequence_parallel": False},
        "megatron.overlap-comm": {"overlaps": ("param", "p2p")},
        "megatron.zero-three": {"zero_stages": (0, 1, 2)},
        "chatlearn.context-from-8192": {"context_parallel": False},
        "chatlearn.experts-for-moe": {"expert_parallel": False},
        "chatlearn.overlap-helps": {"overlaps": ()},
        "chatlearn.overlap-off-first": {"overlaps": ("grad",)},
        "chatlearn.selective-is-cheap": {"recompute": ("none", "full")},
        "chatlearn.full-saves-most": {"recompute": ("none", "selective")},
        "megatron.selective-recommended": {"recompute": ("none", "full")},
        "playbook.poor-full-recompute": {"recompute": ("none", "selective")},
        "playbook.zero-two-with-pipeline-1024": {"zero_stages": (0, 1, 3)},
    }
    assert set(lacking) == set(ABLE)
    for rule, less in lacking.items():
        assert able(rule, Some(**whole))
        assert not able(rule, Some(**{**whole, **less}))
        assert follows(rule, case("8B"), layouts()[0], Some(**{**whole, **less})) is None
    assert able("megatron.tensor-range", Some())


if __name__ == "__main__" and "--update-golden" in sys.argv:
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text("".join(f"{row}: {value}\n" for row, value in answers().items()), encoding="utf-8")
