"""The lines of an explanation, its ladders and its steps, from figures that are round."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace as Some

import pytest
from diagnose_cases import given

from meshwright.domain.layout import Full, Layout, NoRecompute, Selective
from meshwright.explain import ladder, memory_fit, reach, sensitivity
from meshwright.explain.sections import sections
from meshwright.units import GIB


def explanation(**more):
    step = Some(
        change="tp 2 -> 4", step_s=9.0, step_change_ratio=-0.1, expected_change_ratio=-0.1, memory_reserved_bytes=30 * GIB,
        fits=True, refused_because=(),
    )
    over = Some(**{**vars(step), "change": "mb 1 -> 2", "step_change_ratio": -0.2, "fits": False})
    refused = Some(
        **{**vars(step), "change": "pp 1 -> 3", "step_s": None, "step_change_ratio": None, "refused_because": ("a", "b")}
    )
    losses = [
        Some(name=name, points_percent=points, cause="c", time_s=points / 10)
        for name, points in (("ideal", 40.0), ("small", 0.04), ("bubble", 20.0), ("host", -0.05), ("tp", 30.0), ("dp", 10.0))
    ]
    side = Some(rule="chatlearn.micro-batch-one", says="one", verdict="holds", sentence="one is fast", source="001:33")
    other = Some(rule="mindspore.micro-batch-two", says="two", verdict="does-not-apply", sentence="two is not", source="002:78")
    rules = [
        Some(rule="mindspore.micro-batch-two", verdict=verdict, followed=followed, says="says", sentence="words", source="002:78")
        for verdict, followed in (
            [
                ("holds", True),
                ("holds", False),
                ("not-followed", False),
                ("fails", True),
                ("fails", False),
                ("wrong", True),
                ("does-not-apply", True),
            ]
        )
    ]
    rules.append(Some(**{**vars(rules[2]), "rule": "chatlearn.full-saves-most"}))

    def topic(decision, sentence, taken="", right=()):
        return Some(topic=decision, decision=decision, sides=(side, other), sentence=sentence, taken=taken, right=right)

    rung = Some(knob="tp", memory_reserved_bytes=10 * GIB, fits=True, step_s=8.0, step_change_ratio=0.05, label="tp2")
    no = Some(**{**vars(rung), "fits": False})
    plain = {
        "losses": losses,
        "causes": [Some(name="wait", points_percent=12.34)],
        "fastest": Some(
            differences=("tp 2 -> 4", "mb 1 -> 2"), step_s=7.0, step_change_ratio=-0.3, memory_reserved_bytes=20 * GIB, label="tp4"
        ),
        "sensitivities": [step, over, refused],
        "judgements": rules,
        "fit": Some(sentence="it fits", rungs=[rung, no], alone=[no, rung], levers=["more"]),
        "batch": Some(sentence="a batch"),
        "throughput": Some(sentence="fast", rungs=[rung, no]),
        "start": Some(parameters_per_device=4e9, chosen_parameters_per_device=1e9),
        "what_ifs": [Some(change="net", step_s=1.5, step_change_ratio=-0.01)],
        "launch": [Some(sentence="graphs=none (given): +31.0 % against graphs=step")],
        "disagreements": [
            topic("taken", "so", "chatlearn.micro-batch-one"),
            topic("tie", "", right=("chatlearn.micro-batch-one", "mindspore.micro-batch-two")),
            topic("none", "why"),
            topic("no-question", ""),
        ],
    }
    return Some(**{**plain, **more})


def page(all_rules=False, **more):
    return {each.title.strip("123 "): each.lines for each in sections(explanation(**more), all_rules=all_rules)}


def test_in_short():
    lines = page()["In short"]
    assert lines == (
        "of 100 points 40.0 are useful work; most is lost to tp 30.0, bubble 20.0, dp 10.0",
        "the fastest layout found takes 7.00 s (-30.0 %), 20.0 GiB: tp4",
        "the best single step is tp 2 -> 4: 9.00 s (-10.0 %), 30.0 GiB",
        "of the guides' rules 2 hold, 2 would hold and are not followed, 2 do not hold here, 1 is wrong anywhere, 1 does not apply",
    )
    best = explanation().fastest
    for ratio in (0.0, 0.1):
        riskier, speed = Some(**{**vars(best), "step_change_ratio": ratio}), explanation().throughput
        runs = Some(sentence="fast", rungs=speed.rungs[:1])
        risk = "; faster with the risk of not running, which this one has"
        assert page(fastest=riskier, throughput=runs)["In short"][1].endswith(risk)
        assert page(fastest=riskier, throughput=speed)["In short"][1].endswith("tp4; the layout asked about does not fit")
    step = explanation().sensitivities[0]
    for steps in ([], [Some(**{**vars(step), "expected_change_ratio": 0.0})]):
        assert len(page(sensitivities=steps)["In short"]) == 3
    two = [step, Some(**{**vars(step), "change": "better", "step_change_ratio": -0.05, "expected_change_ratio": -0.11})]
    assert page(sensitivities=two)["In short"][2].startswith("the best single step is better"), "by what is expected"


def test_every_section():
    assert page() == {
        "In short": page()["In short"],
        "Fit the model in memory": (
            "it fits",
            "tp: 10.0 GiB fits",
            "tp: 10.0 GiB",
            "tp alone: 10.0 GiB",
            "tp alone: 10.0 GiB fits",
            "more",
        ),
        "Reach the global batch": ("a batch",),
        "Raise the throughput": (
            "fast",
            "from this layout to the fastest found: tp 2 -> 4, mb 1 -> 2",
            "tp: 8.00 s (+5.0 %), 10.0 GiB  tp2",
            "tp: 8.00 s (+5.0 %), 10.0 GiB, does not fit  tp2",
            "by the guide's measure the start has 4B parameters a device, this layout 1B",
        ),
        "How it is launched": ("graphs=none (given): +31.0 % against graphs=step",),
        "Where the points between MFU and 100 go": (
            " 40.00  ideal (the MFU): 4.00 s",
            " 20.00  bubble [c]: 2.00 s",
            " -0.05  host [c]: -5.00 ms",
            " 30.00  tp [c]: 3.00 s",
            " 10.00  dp [c]: 1.00 s",
            "by cause: wait 12.3",
        ),
        "One step of each knob": (
            "tp 2 -> 4: 9.00 s (-10.0 %), 30.0 GiB",
            "mb 1 -> 2: 9.00 s (-20.0 %), 30.0 GiB, does not fit",
            "pp 1 -> 3: refused, a; b",
        ),
        "Better hardware or software": ("net: 1.50 s (-1.0 %)",),
        "Where the guides disagree": page()["Where the guides disagree"],
        "What the guides say": page()["What the guides say"],
    }
    assert (
        page(start=None)["Raise the throughput"][-1] == "nothing near 4 B parameters a device is legal, where the guide would start"
    )
    assert len(page(fastest=None)["Raise the throughput"]) == 4


def test_topics_and_rules():
    taken, tie, none = page()["Where the guides disagree"]
    first, one, two = taken.split("\n")
    assert first == 'taken: this case takes "one"; so'
    assert one.startswith("[holds] one is fast  ") and two.startswith("[does not apply] two is not  ")
    assert '"' not in one
    assert tie.startswith('tie: a tie between "one" and "two"\n')
    assert none.startswith("none: none of them is right here; why\n")
    quoted = page(all_rules=True)["Where the guides disagree"]
    assert len(quoted) == 4 and '"' in quoted[0].split("\n")[1]
    told = page()["What the guides say"]
    assert [line.split("]")[0] for line in told] == [
        "[not followed",
        "[fails",
        "[wrong",
        "of the others 2 hold, 1 would hold and is not followed, 1 does not hold here, 1 does not apply: "
        "--all shows them, with the guides' words and the constants",
    ]
    assert len(page(all_rules=True)["What the guides say"]) == 8


class Trials:
    """Facts of a case in which the step and the memory of a layout follow from its degrees in the head."""

    def __init__(self, layout, refused=(), **more):
        self.layout, self._refused = layout, refused
        self.case, self.features, self.error_ratio = None, None, 0.03
        self.step_s, self.estimate = self.time(layout), self.trial(layout).estimate
        vars(self).update(more)

    def time(self, layout):
        return 8.0 / layout.tensor_parallel + layout.pipeline_parallel + (4.0 if layout.recompute != NoRecompute() else 0.0)

    def trial(self, layout, case=None):
        need = 64.0 / layout.tensor_parallel / layout.pipeline_parallel
        step_s = self.time(layout) * (1.0 if case is None else case)
        expected_s = step_s * (1.0 + need / 16.0)
        own = Some(fits=need <= 16.0, mfu_ratio=0.5, memory_reserved_bytes=need, bubble_ratio=0.1, expected_step_s=expected_s)
        return Some(layout=layout, step_s=step_s, expected_step_s=expected_s, reserved_bytes=need, estimate=own)

    def know(self, layouts):
        assert not any(layout in self._refused for layout in layouts)

    def refusals(self, layout):
        return ("no",) if layout in self._refused else ()

    def label(self, layout):
        return f"tp{layout.tensor_parallel} pp{layout.pipeline_parallel}"

    def own(self, layout):
        return layout


def test_steps_of_knobs_are_set_beside_the_layout(monkeypatch):
    now, half, double = (Layout(tensor_parallel=tp, data_parallel=8 // tp, num_microbatches=1) for tp in (4, 2, 8))
    found = [
        Some(knob="tp", change="4 -> 2", layout=half, refused_because=()),
        Some(knob="tp", change="4 -> 8", layout=double, refused_because=()),
        Some(knob="pp", change="1 -> 3", layout=None, refused_because=("why",)),
    ]
    monkeypatch.setattr(sensitivity, "neighbours", lambda *_: found)
    less, more, none = sensitivity.sensitivities(Trials(now))
    assert (less.step_s, less.step_change_ratio, less.memory_reserved_bytes, less.memory_change_bytes, less.fits) == (
        5.0,
        5.0 / 3.0 - 1.0,
        32.0,
        16.0,
        False,
    )
    assert (more.step_s, more.step_change_ratio, more.memory_change_bytes, more.fits) == (2.0, pytest.approx(-1 / 3), -8.0, True)
    assert [less.expected_change_ratio, more.expected_change_ratio] == pytest.approx([15.0 / 6.0 - 1.0, 3.0 / 6.0 - 1.0])
    assert (none.refused_because, none.step_s, none.label) == (("why",), None, None)
    assert sensitivity.sensitivities(Trials(now, refused=(half,)))[0].refused_because == ("no",)
    monkeypatch.setattr(sensitivity, "_cases", lambda _: [("net", 0.5)])
    (better,) = sensitivity.what_ifs(Trials(now, case=1))
    assert (better.step_s, better.step_change_ratio, better.mfu_ratio) == (1.5, -0.5, 0.5)


def test_better_hardware_is_a_quarter_better():
    case = given("8b-one-node").case
    found = dict(sensitivity._cases(case))
    network, inside, graphs, memory = (found[name] for name in found)
    assert network.cluster.network.bytes_per_s == 1.25 * case.cluster.network.bytes_per_s
    assert inside.cluster.scale_up.bytes_per_s == 1.25 * case.cluster.scale_up.bytes_per_s
    assert memory.cluster.device.memory_bytes_per_s == 1.25 * case.cluster.device.memory_bytes_per_s
    assert graphs.implementation.cuda_graphs and not case.implementation.cuda_graphs
    own = replace(case, implementation=replace(case.implementation, cuda_graphs=True))
    assert len(list(sensitivity._cases(own))) == 3


@pytest.mark.parametrize("start", [None, "guided"])
def test_rungs_are_steps_from_one_to_the_next(monkeypatch, start):
    target = Layout(tensor_parallel=4, pipeline_parallel=2, data_parallel=1, num_microbatches=8, recompute=Full())
    begun = Layout(tensor_parallel=1, pipeline_parallel=2, data_parallel=4, num_microbatches=2)
    monkeypatch.setattr(ladder, "start_layout", lambda _: begun if start else None)
    monkeypatch.setattr(
        ladder,
        "vary",
        lambda case, features, now, **knobs: (
            replace(now, **knobs, data_parallel=1, num_microbatches=8) if "tensor_parallel" in knobs else replace(now, **knobs)
        ),
    )
    monkeypatch.setattr(ladder, "change", lambda facts, then, now: f"{then / now:.2f} times")
    found = ladder.speed_step(Trials(target))
    if start:
        assert [(each.knob, each.step_s, each.fits) for each in found.rungs] == [
            ("guided start", 10.0, False),
            ("tp", 4.0, True),
            ("recompute", 8.0, True),
        ]
        assert [each.step_change_ratio for each in found.rungs] == pytest.approx([0.0, -0.6, 1.0])
        assert found.sentence == "from 10.0 s at the guided start (tp1 pp2) to 8.00 s, 0.80 times; most by tp (-60.0 %)"
    else:
        assert [(each.knob, each.step_s) for each in found.rungs] == [("guided start", 4.0), ("recompute", 8.0)]
        assert found.sentence.endswith("2.00 times; most by recompute (+100.0 %)")
    bare = replace(target, recompute=NoRecompute())
    if not start:
        (only,) = ladder.speed_step(Trials(target, refused=(bare,))).rungs
        assert only.step_s == 8.0


@pytest.mark.parametrize(("least", "smallest"), [(1, 6), (2, 12), (4, 24), (9, 24)])
def test_the_smallest_batch_is_the_first_number_of_microbatches_that_runs(least, smallest):
    layout = Layout(data_parallel=3, microbatch_sequences=2, num_microbatches=4)
    facts = Trials(layout, in_microbatches=lambda count: count if count >= least else None)
    assert reach._smallest(facts) == smallest


def test_half_and_twice_the_batch():
    layout = Layout(data_parallel=3, microbatch_sequences=2, num_microbatches=4)
    asked = []

    def with_batch(factor):
        asked.append(factor)
        return Trials(layout).trial(replace(layout, num_microbatches=round(4 * factor))) if factor > 1 else None

    case = Some(batch=Some(global_batch_sequences=24, tokens=24 * 1000, packing=None))
    found = reach.batch_step(Trials(layout, case=case, with_batch=with_batch, in_microbatches=lambda count: count))
    assert sorted(asked) == [0.5, 2.0]
    assert (found.twice.global_batch_sequences, found.twice.num_microbatches, found.half) == (48, 8, None)
    assert found.smallest_batch_sequences == 6
    assert found.sentence.startswith("dp3 x mb2 x 4 micro-batches = 24 sequences = 24K tokens, at 50.0 % MFU; ")
    assert found.sentence.endswith("; the smallest batch of this layout is 6")


@pytest.mark.parametrize(("world", "batch", "replicas"), [(16, 64, 16), (16, 24, 8), (4, 6, 2), (2, 1, 1)])
def test_single_techniques_go_as_far_as_they_can(monkeypatch, world, batch, replicas):
    """Tensor parallelism to the end of a node, stages to the number of layers or devices, shards to the replicas of the batch."""
    monkeypatch.setattr(memory_fit, "layout_refusals", lambda *_: ())
    monkeypatch.setattr(memory_fit, "sequence_parallel_unasked", lambda *_: True)
    case = Some(batch=Some(global_batch_sequences=batch), cluster=Some(devices_per_node=8), model=Some(num_layers=4))
    features = Some(zero_stages=(0, 1, 3), recompute=("full",))
    facts = Trials(Layout(data_parallel=world, num_microbatches=1), case=case, features=features)
    found = dict(memory_fit._alone(facts))
    tensor, stages = min(8, world), min(4, world)
    assert list(found) == [f"tp{tensor}", f"pp{stages}", *(["zero1", "zero3"] if replicas > 1 else []), "full recompute"]
    own = found[f"tp{tensor}"]
    assert (own.sequence_parallel, own.data_parallel, own.num_microbatches) == (
        True,
        world // tensor,
        max(1, batch // (world // tensor)),
    )
    piped = found[f"pp{stages}"]
    assert (piped.sequence_parallel, piped.data_parallel, piped.num_microbatches) == (
        False,
        world // stages,
        max(1, batch // (world // stages)),
    )
    again = found["full recompute"]
    assert (again.recompute, again.data_parallel, again.num_microbatches) == (Full(), replicas, batch // replicas)
    if replicas > 1:
        assert (found["zero1"].optimizer_shards, found["zero1"].parameter_shards) == (replicas, 1)
        assert (found["zero3"].optimizer_shards, found["zero3"].parameter_shards) == (replicas, replicas)
    refused = Trials(facts.layout, refused=(own,), case=case, features=Some(zero_stages=(0,), recompute=()))
    assert [each for each in dict(memory_fit._alone(refused)) if each.startswith("tp")] == (
        [f"tp{tensor // 2}"] if tensor > 2 else []
    )
    monkeypatch.setattr(memory_fit, "layout_refusals", lambda *_: ("no",))
    assert memory_fit._alone(facts) == []


def test_the_ladder_of_memory_has_a_rung_for_every_knob_that_is_another():
    first = Layout(data_parallel=2, num_microbatches=64)
    target = Layout(
        tensor_parallel=2,
        sequence_parallel=True,
        context_parallel=2,
        pipeline_parallel=2,
        virtual_stages=2,
        schedule="interleaved",
        expert_parallel=2,
        data_parallel=2,
        optimizer_shards=2,
        microbatch_sequences=2,
        num_microbatches=16,
        recompute=Selective(),
        offload=("optimizer",),
    )
    found = memory_fit._memory_ladder(Some(layout=target), first)
    assert [words for words, _ in found] == [
        "tp2 sp",
        "cp2",
        "ep2 etp1",
        "pp2 vp2",
        "zero1 over 2",
        "mb2",
        "recompute=selective:core_attn",
        "offload=optimizer",
    ]
    assert found[-1][1] == target
    plain = replace(first, pipeline_parallel=2, num_microbatches=3)
    assert [words for words, _ in memory_fit._memory_ladder(Some(layout=plain), first)] == ["pp2"]
    assert memory_fit._memory_ladder(Some(layout=replace(first, num_microbatches=3)), first) == []
