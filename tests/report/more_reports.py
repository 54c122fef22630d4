"""Every other report and picture from round figures, with its styles: what a golden file must hold.

The figures are made up, so that no formula of the cost model moves them. Written again by
``PYTHONPATH=src python tests/report/more_reports.py --update-golden``; read the diff.
"""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from hashlib import sha256
from types import SimpleNamespace as Some
from typing import Any

from diagnosis_samples import view_of as diagnosis_view
from pipeline_samples import problem_of, view_of
from report_samples import GOLDEN, LAYOUT, case, estimate, ranked
from rich.segment import Segment

from meshwright.api.few_shot import FewShot
from meshwright.api.next_run import NextRun
from meshwright.api.views.balance import SECONDS_AND_BYTES, balance_view, overfull_view, ranking_view, rival
from meshwright.api.views.fix import fix_view, wish_words
from meshwright.api.views.rehearse import verdict as rehearsed
from meshwright.domain.balance import Overfull
from meshwright.domain.estimate import Interval
from meshwright.domain.layout import Full
from meshwright.errors import Message
from meshwright.evidence.fit.few_shot import Conflict, Moved
from meshwright.frameworks.stage_lists import Words
from meshwright.judging.walk import GuidedStep
from meshwright.report import (
    balance,
    calibration,
    cost,
    decomposition,
    dryrun,
    edits,
    few_shot,
    findings,
    fix,
    guided,
    headline,
    packing,
    perfetto,
    profile,
    ranking,
    rehearse,
    rehearse_picture,
    runs,
    stages,
    verdict,
)
from meshwright.report.charts import Axis, Frame, log_axis
from meshwright.report.console import console
from meshwright.report.page import diagnosis_picture
from meshwright.report.pipeline_picture import pipeline_picture
from meshwright.report.svg import BLUE, Drawing
from meshwright.report.terminal import renderables
from meshwright.search import DeviceCount, MinimumDevices, RunCost
from meshwright.search.balance.solve import place
from meshwright.search.devices import CountInterval
from meshwright.search.repair import Devices, Faster, Legal, Wish, WithinMemory
from meshwright.units import GIB

SURE = Interval(
    level=0.9, step_s=(13.5, 18.0), memory_peak_bytes=(30.0 * GIB, 50.0 * GIB), memory_reserved_bytes=(40.0 * GIB, 52.0 * GIB)
)


def painted(parts: Any, width: int = 110) -> str:
    """A report as it is piped, and below it what has a style."""
    stream = io.StringIO()
    shown = console(stream, width)
    lines, styled = [], []
    for part in renderables(parts):
        for line in shown.render_lines(part, pad=False):
            lines.append("".join(segment.text for segment in line).rstrip())
            styled += [f"{each.style}: {each.text.strip()}" for each in Segment.simplify(line) if each.style and each.text.strip()]
    return "\n".join([*lines, "", "styles", *dict.fromkeys(styled)]) + "\n"


def message(words: str) -> Message:
    return Message("made.up", words, {})


def calibrated() -> Any:
    table = Some(
        name="mine",
        version="2",
        ranking_ratio=0.031,
        provenance={"rows": "of our own"},
        diagnostics={"median_step_error_ratio": 0.052, "median_memory_error_ratio": 0.041, "offsets": 7, "converged": False},
        offsets={
            "gemm": Some(by_level={"device": {"h100": 0.2, "a100": -0.5}, "all": {"": 0.1}}),
            "ring": Some(by_level={"device": {"h100": 0.3}}),
        },
    )
    readings = [Some(runs=[1] * 12), Some(runs=[2] * 8)]
    return table, readings, [Some(name="gemm", spreads={"device": 0.1, "all": 0.2})]


def run_cost() -> RunCost:
    return RunCost(
        tokens=15e12,
        steps=1788139,
        days=20.0,
        devices=504,
        device_hours=245760.0,
        cost=491520.0,
        energy_kwh=250000.0,
        deadline_days=22.0,
        meets_deadline=True,
        surely_meets_deadline=False,
        idle_devices=8,
        idle_device_hours=3840.0,
        idle_cost=7680.0,
        intervals={"days": (18.0, 24.0), "cost": (442368.0, 589824.0)},
    )


def devices(count: int, label: str = "tp8 dp8 mb1") -> DeviceCount:
    ends = CountInterval(level=0.9, step_s=(1.2, 1.8), days=(32.0, 48.0), cost=(900.0, 1350.0))
    return DeviceCount(devices=count, nodes=count // 8, label=label, step_s=1.5, days=40.0, cost=1125.0, interval=ends)


def change(reserved: float = 1.0, *, sort: str = "layout", margin: float | None = 2.5 * GIB, ratio: float | None = 0.061) -> Any:
    meaning = Some(resume="reshard", reason="other shards")
    after = estimate(LAYOUT, factor=1.061)
    after = replace(after, memory_reserved_bytes=reserved * after.memory_reserved_bytes)
    edit = Some(field="tensor_parallel", before=None, after=8, file="train.sh", line=3, meaning=meaning)
    return Some(
        moves=[Some(sort=sort, words="tp 4 -> 8")],
        estimate=after,
        fits=margin is not None and margin >= 0,
        margin_bytes=margin,
        step_change_ratio=ratio,
        step_change_interval=(0.04, 0.0821) if ratio else None,
        memory_change_bytes=-3.0 * GIB,
        risk=0.125,
        meaning=meaning,
        diff="" if sort == "layout" else "--- a\n+++ b\n@@ 1 @@\n-old\n+new\n same\n",
        edits=[edit],
        by_hand=[message("set this")],
        notes=[message("mind that")],
    )


def fixed(**more: Any) -> Any:
    said = Some(
        rank=3, line=17, phase="", requested_bytes=1, capacity_bytes=2, free_bytes=3, allocated_bytes=4, unallocated_bytes=5
    )
    observed = Some(
        said=said,
        ranks=(3, 7),
        stage=1,
        why_stage="rank 3 of 8",
        kind="capacity",
        needed_bytes=6,
        margin_bytes=7,
        verdicts=(
            Some(kind="capacity", message=message("too much"), short_bytes=8),
            Some(kind="fragmentation", message=message("pieces"), short_bytes=None),
        ),
    )
    plain = {
        "wish": None,
        "layout": LAYOUT,
        "base": estimate(LAYOUT),
        "observed": observed,
        "remarks": [message("remark")],
        "changes": [change(), change(sort="environment", margin=-1.5 * GIB, ratio=None)],
        "granted": False,
        "advice": [message("advice")],
        "repairs": Some(searched_edits=2, candidates=1234, search_s=0.25, proved=True, nearest=None),
        "bound_bytes": 60.0 * GIB,
        "extra_bytes": 4.0 * GIB,
        "broken": [message("broken")],
        "levers": ("more nodes",),
    }
    return Some(**{**plain, **more})


def fixes() -> list[Any]:
    many = replace(estimate(replace(LAYOUT, pipeline_parallel=20)), label="long")
    return [
        *fix.fix_report(fixed()),
        *fix.fix_report(fixed(bound_bytes=40.0 * GIB), 2),
        *fix.fix_report(fixed(changes=[], observed=None, extra_bytes=0.0, bound_bytes=estimate().stages[0].memory.reserved_bytes)),
        *fix.fix_report(fixed(changes=[], granted=True, base=None)),
        *fix.fix_report(fixed(changes=[], observed=None, granted=True, wish=Faster(ratio=0.1))),
        *fix.fix_report(fixed(changes=[], wish=Faster(ratio=0.1), repairs=slow())),
        *fix.fix_report(fixed(changes=[], repairs=None)),
        *fix.fix_report(fixed(base=many, changes=[change(0.5, margin=None, ratio=0.0)])),
    ]


def slow() -> Any:
    """A search that found nothing."""
    near = Some(missing=3.0 * GIB, unit="B", edits=[Some(words="pp 4 -> 8", field="pp", before=4, after=8)], layout=LAYOUT)
    return Some(searched_edits=1, candidates=99, search_s=12.0, proved=False, nearest=near)


def wishes() -> list[Wish | None]:
    return [WithinMemory(bound_bytes=None), WithinMemory(bound_bytes=3.0 * GIB), Faster(ratio=0.1), Devices(count=8), Legal(), None]


def edited() -> Any:
    meaning = Some(resume="convert", reason="other layers")
    values = ((None, True), (4, ("mlp", "moe")), (False, "a b"))
    changes = [
        Some(key=f"--key-{number}", before=before, after=after, meaning=meaning) for number, (before, after) in enumerate(values)
    ]
    return Some(messages=[message("mind")], edits=changes, diff=change(sort="environment").diff, meaning=meaning)


def nearest() -> list[Any]:
    one = Some(field="tensor_parallel", before=False, after=(), why="it has none")
    plan = Some(changes=[one], estimate=estimate(), memory_change_bytes=2.0 * GIB, step_change_ratio=0.0312, faster=None)
    less = Some(**{**vars(plan), "memory_change_bytes": -2.0 * GIB, "step_change_ratio": -0.01})
    return [*edits.nearest_report(plan), *edits.nearest_report(less), *edits.nearest_report(Some(changes=[]))]


def checked(**more: Any) -> Any:
    def finding(severity: str, id: str, path: str, value: object, expected: object, source: str = "somebody") -> Any:
        return Some(severity=severity, message=Message(id, "is wrong", {}, path), value=value, expected=expected, source=source)

    plain = {
        "findings": [
            finding("error", "check.a", "train.sh:3", True, False),
            finding("warning", "check.b", "x.yaml: a.b", 1234, 5678.4),
            finding("warning", "check.c", "layout", 1, 2),
            finding("advice", "check.d", "", "x" * 50, 2),
            finding("advice", "check.e", "c.json", 0.123456, None, ""),
            finding("advice", "check.f", "c.json", {"a": 1}, "mlp"),
        ],
        "estimate": estimate(),
        "skipped": ["this and that"],
        "ok": False,
    }
    return Some(**{**plain, **more})


def published(**more: Any) -> Any:
    plain = {
        "id": "row-1",
        "model": "llama-8B",
        "label": "tp2 dp4 mb1",
        "devices": 8,
        "device": "h100",
        "precision": "bf16",
        "task": "sft",
        "global_batch_sequences": 1024,
        "sequence_tokens": 8192,
        "framework": "nanotron",
        "framework_version": "0.4",
        "tokens_per_s_per_device": 7503.4,
        "step_s": 2.5,
        "mfu_ratio": 0.403,
        "memory_bytes": 63.1 * GIB,
        "memory_kind": "allocated peak",
        "num_microbatches": 16,
        "recompute": "full",
    }
    return Some(**{**plain, **more})


def nears() -> list[Any]:
    bare = published(
        label="",
        devices=None,
        global_batch_sequences=None,
        tokens_per_s_per_device=None,
        step_s=None,
        mfu_ratio=None,
        memory_bytes=None,
        num_microbatches=None,
        task="pretrain",
        framework_version="",
    )
    differs = (
        Some(what="parameters", published=8.03e9, wanted=7e9),
        Some(what="devices", published=8, wanted=16),
        Some(what="device", published="h100", wanted="a100"),
        Some(what="kernel", published="flash", wanted=""),
    )
    return [
        Some(cell=Some(best=published(), ran=13, failed=48), differs=differs),
        Some(cell=Some(best=published(), ran=1, failed=0), differs=()),
        Some(cell=Some(best=bare, ran=0, failed=87), differs=differs[:1]),
        Some(cell=Some(best=published(recompute="none", sequence_tokens=None), ran=1, failed=2), differs=()),
    ]


def decomposed(**more: Any) -> Any:
    def residual(stage: int, round_: int, value: float, judged: bool = True) -> Any:
        return Some(peak=Some(stage=stage, round=round_), residual_mb=value, judged=judged)

    plain = {
        "components": (
            Some(name="parameters", value_mb=1583.4, interval_mb=(1500.2, 1600.6), sensitivity=1.25),
            Some(name="activations", value_mb=826.0, interval_mb=None, sensitivity=0.5),
        ),
        "residuals": (residual(1, 0, 3.0), residual(2, 1, -12.0), residual(3, 1, 5.0, judged=False)),
        "exact": False,
        "runs": Some(rounds=2),
        "rms_mb": 7.6,
        "max_residual_mb": 12.0,
        "margin_mb": 24.4,
    }
    return Some(**{**plain, **more})


def probes(rounds: int = 2) -> Any:
    each = Some(stages=(1, 2), offset=(0, 1), recompute=(1, 1), select_recompute=(0, 2), select_comm_recompute=(0, 0))
    return Some(
        missing=[message("open")], rounds=[each, Some(**{**vars(each), "stages": (3,)})][:rounds], equations=6, unknowns=("a", "b")
    )


def dry_run() -> Any:
    return Some(
        rank=1,
        peak_bytes=10 * GIB,
        peak_at="backward",
        parameters=1_234_567,
        optimizer_bytes=3 * 2**26,
        activation_bytes=2**27,
        product_flops=3 * 10**12,
        attention_flops=10**11,
        scan_flops=0,
        peak_by_purpose={"a": 6 * GIB, "b": 4 * GIB - 2**20, "c": 10 * GIB / 1000, "d": 10 * GIB / 1001},
        collectives=[Some(operation="all-gather", ranks=4, calls=3, payload_bytes=2**20)],
    )


def profiled(**more: Any) -> Any:
    machine = Some(name="here", kind="cpu", memory_bytes=16 * GIB, ranks=2, threads=1, cores=4, torch="2.13")
    plain = {
        "machine": machine,
        "samples": [],
        "reused": 3,
        "seconds": 61.7,
        "noise_ratio": 1.5,
        "too_long": ["a", "b", "c", "d", "e"],
    }
    return Some(**{**plain, **more})


def fitted() -> Any:
    return Some(
        benches=[
            Some(bench="product", samples=12, median_ratio=0.03, worst_ratio=0.2, held_out_ratio=0.015),
            Some(bench="copy", samples=1, median_ratio=0.0, worst_ratio=0.0, held_out_ratio=None),
        ]
    )


def plans(certain: bool = True) -> list[Any]:
    found = [
        ranked(1, LAYOUT, 1.0, 0),
        ranked(2, replace(LAYOUT, recompute=Full(layers=2)), 1.02, 0),
        ranked(3, replace(LAYOUT, data_parallel=8, optimizer_shards=8), 1.2, 1),
        ranked(4, LAYOUT, 1.6, 1),
    ]
    over = [
        replace(
            each.estimate,
            interval=SURE if certain else None,
            fits=each.rank != 2,
            memory_fit_probability=(1.0, 0.4, 0.995, 0.9)[each.rank - 1],
        )
        for each in found
    ]
    return [replace(each, estimate=own) for each, own in zip(found, over, strict=True)]


def balanced(units: Any = None, counts: Any = (((3, 5),), ((2, 0),)), **more: Any) -> Any:
    import numpy as np
    from test_balance_report import answer, problem

    asked = problem()
    given = {} if units is None else {"units": units}
    heavy = rival(asked, "by hand", place(asked, np.array([[[[9, 1]], [[0, 0]]]])))
    light = rival(asked, "evenly", place(asked, np.array([[[[5, 5]], [[0, 0]]]])))
    words = (
        Words(framework="MindFormers", settings={"offset": [0, 0]}, notes=("a note",)),
        Words(framework="Megatron-LM", lacks=("two",)),
    )
    return answer(asked, [counts], words=words, rivals=(heavy, light), **given, **more)


def long_balance(stages: int) -> Any:
    """A layer a stage, of which every third is recomputed, on about as many stages as a table has lines for."""
    import numpy as np
    from test_balance_report import BODY, answer, problem

    asked = problem(stages=stages, memory_bounds=(1100.0,) * stages, bodies=(replace(BODY, layers=stages),), microbatches=stages)
    full = np.arange(stages) % 3 == 0
    return answer(asked, np.array([[[~full], [full]]]))


def packed() -> Any:
    """Samples in packs of 4,096 tokens."""
    return Some(packing=Some(samples_per_sequence=12.345), sequence_tokens=4096, padding_ratio=0.0213)


def overfull() -> Overfull:
    return Overfull(stage=1, demand=1200.0, bound=1000.0, proved=True, levers=("more memory: fits",))


def slower() -> list[Any]:
    found = balanced()
    gap = replace(
        found.balance,
        gap_ratio=0.05,
        status="gap",
        slot_bound=160.0,
        others=(found.rivals[1].placement,),
        faster=found.rivals[1].placement,
        objective="simulated",
    )
    return [found, replace(found, balance=gap)]


def chart() -> str:
    axis = log_axis([1.0, 100.0], label="s")
    frame = Frame(
        drawing=Drawing(width=300, height=260, title="a < b"),
        left=40,
        top=30,
        width=220,
        height=180,
        across=axis,
        up=Axis(low=0.0, high=10.0, ticks=((0.0, "0"), (5.0, "5"))),
    )
    frame.ground("title & more", "remark")
    frame.diagonal_band(1.25, "#eee")
    frame.dots([(1.0, 2.0), (50.0, 4.0), (1e9, -3.0)], BLUE)
    frame.box([1.0, 2.0, 3.0, 50.0], 6.0, height=10.0)
    return str(frame.drawing)


def rehearsal() -> dict[str, Any]:
    from test_rehearse_report import entry, view

    found = view(
        entries=[
            entry(1),
            entry(2, memory_peak_measured_bytes=2**31),
            entry(4, measured_s=None, runs_s=[], cause="killed"),
            entry(5, rank_measured=3, error_ratio=0.25),
        ]
    )
    return {**found, "verdict": rehearsed(found)}


def reports() -> dict[str, str]:
    """Name of a golden file -> what it must hold."""
    table, readings, freedoms = calibrated()
    own = {**table.diagnostics, "own_runs": 3, "own_median_step_error_ratio": 0.08, "converged": True}
    end = replace(estimate(factor=1.05), memory_fit_probability=0.80)
    step = GuidedStep(
        step="end", rule="chatlearn.one", source="000:21", says="one", choice="tp8", estimate=end, searched="tp8", loss_ratio=0.05
    )
    uneven = replace(
        estimate(), stages=tuple(replace(each, chunk_layers=(10, 9 + (each.stage == 0))) for each in estimate().stages)
    )
    late = MinimumDevices(
        fits=devices(64), meets_deadline=devices(128, "tp8 offload=optimizer"), meets_deadline_upper=None, tried=(8, 64, 128)
    )
    few = FewShot(
        n=3, interval_ratio_before=2.25, interval_ratio_after=1.44,
        moved=(
            Moved(constant="gemm_ratio", cell="h100|megatron|bf16", before=0.7, after=0.63),
            Moved(constant="made_up", cell="h100|megatron|bf16", before=2e-6, after=2.1e-6),
        ),
        conflicts=(
            Conflict(rows=("a-1", "a-2"), why=message("a-1 and a-2 differ")),
            Conflict(rows=("a-3",), why=message("a-3 is too fast"), physics=True),
        ),
        next_run=NextRun(label="tp2 dp4 mb1", narrows_ratio=0.31, candidates=4, model="llama", devices=8),
    )
    found = {
        "few_shot": [
            *few_shot.few_shot_report(few),
            *few_shot.few_shot_report(replace(few, n=1, moved=(), conflicts=(), interval_ratio_before=None, next_run=None)),
        ],
        "calibration": [
            *calibration.calibration_report(table, readings, freedoms, "out.json"),
            *calibration.calibration_report(Some(**{**vars(table), "diagnostics": own}), readings, freedoms, "out.json"),
        ],
        "cost": [
            *cost.run_cost_lines(run_cost(), replace(estimate(), interval=SURE)),
            *cost.minimum_lines(late),
            *cost.run_cost_lines(replace(run_cost(), deadline_days=19.0, meets_deadline=False, idle_cost=None), estimate()),
            *cost.run_cost_lines(replace(run_cost(), deadline_days=24.0), replace(estimate(), calibrated=True)),
            *cost.run_cost_lines(replace(run_cost(), deadline_days=18.0, meets_deadline=False), estimate()),
            *cost.run_cost_lines(replace(run_cost(), deadline_days=17.5, meets_deadline=False), estimate()),
        ],
        "fix": fixes(),
        "findings": [
            *findings.findings_report(checked()),
            *findings.findings_report(checked(findings=[], ok=True, estimate=None, skipped=[])),
        ],
        "runs": [
            *runs.nearest_list(nears(), 1234),
            *(part for near in nears() for part in runs.closest_line(near)),
            *runs.attempts_list([each.cell for each in nears()], 2),
            *runs.attempts_list([nears()[0].cell] * 41, None),
        ],
        "decomposition": [
            *decomposition.decomposition_report(decomposed()),
            *decomposition.decomposition_report(decomposed(exact=True)),
            *decomposition.decomposition_report(decomposed(runs=Some(rounds=1))),
            *decomposition.guide_report(probes()),
            *decomposition.guide_report(probes(0)),
            *decomposition.guide_report(probes(1)),
        ],
        "dryrun": list(dryrun.own_report("train:build", 8, [dry_run()])),
        "profile": [
            *profile.profile_report(profiled(), fitted(), "m.yaml", "s.jsonl"),
            *profile.profile_report(profiled(reused=0, noise_ratio=1.0, too_long=["a", "b", "c"]), None, None, "s.jsonl"),
        ],
        "ranking": [
            *ranking.ranked_table(plans(), 0.03),
            *ranking.ranked_table(plans(), 0.03, "memory"),
            *ranking.pareto_table(plans()),
            *ranking.ranked_table(plans(False)[2:]),
            *ranking.pareto_table(plans(False), "memory"),
            *ranking.riskier_table(plans()[1:]),
            *ranking.pareto_table(plans()[:1]),
            *ranking.ranked_table([plans()[0], replace(plans()[2], group=5)], 0.04),
            *ranking.ranked_table([replace(plans()[2], group=5), *plans()[:2]], 0.04),
        ],
        "headline": [
            *headline.headline(replace(estimate(), interval=SURE, calibrated=True)),
            *headline.headline(estimate(fits=False), "A"),
            *headline.headline(replace(estimate(), interval=SURE, memory_fit_probability=headline.LIKELY)),
            *headline.headline(replace(plans()[1].estimate, memory_upper_bytes=90.0 * GIB)),
            *(part for each in plans() for part in headline.standing(case(), each.estimate)),
            *headline.standing(case(), estimate()),
        ],
        "stages": [
            *stages.stage_memory(uneven),
            *stages.stage_memory(replace(uneven, memory_capacity_bytes=30.0 * GIB)),
            *stages.host_memory(estimate()),
        ],
        "balance": [
            *balance.balance_report(balanced(), "small"),
            *balance.balance_report(balanced(SECONDS_AND_BYTES), "model"),
            *(part for each in slower() for part in balance.balance_report(each, "x")),
            *balance.ranking_report(slower(), [(9, "too many chunks")]),
            *balance.notes_report(["a note"]),
            *balance.overfull_report(balanced().problem, overfull(), "small", SECONDS_AND_BYTES),
            *balance.balance_report(long_balance(33), "long"),
            *balance.balance_report(long_balance(32), "not so long"),
        ],
        "rehearsal": list(rehearse.rehearsal_report(rehearsal())),
        "guided": list(
            guided.guided_report(
                [replace(step, step="start", loss_ratio=-0.02), step], replace(estimate(), memory_fit_probability=0.98)
            )
        ),
        "edits": [*edits.edits_report(edited()), *edits.edits_report(Some(messages=[], edits=[])), *nearest()],
        "verdict": [verdict.amount(each, unit) for each, unit in ((3.0 * GIB, "B"), (0.25, "s"), (1234.0, "sequences"))],
        "packing": list(
            packing.packing_lines(
                {"documents": 1000, "samples": 1200, "mean": 312.4, "p50": 200, "p99": 4000, "max": 9000},
                case().batch,
                estimate(),
                [Some(packs=4, max_tokens=4096, step_s=1.5), Some(packs=2, max_tokens=8192, step_s=None)],
            )
        )
        + list(packing.packing_lines({"documents": 9, "samples": 9, "mean": 3, "p50": 2, "p99": 4, "max": 9}, packed(), None)),
    }
    views = {
        "fix.json": [
            fix_view(fixed(), ["train.sh"]),
            fix_view(fixed(base=None, observed=None, repairs=None)),
            fix_view(fixed(repairs=slow())),
            [wish_words(each) for each in wishes()],
        ],
        "balance.json": [
            *map(balance_view, (*slower(), balanced(SECONDS_AND_BYTES))),
            ranking_view(slower()),
            overfull_view(balanced().problem, overfull(), SECONDS_AND_BYTES),
        ],
    }
    texts = {f"{name}.txt": painted(parts) for name, parts in found.items()}
    texts |= {name: json.dumps(documents) + "\n" for name, documents in views.items()}
    return texts | {
        "pictures.txt": "".join(f"{sha256(picture.encode()).hexdigest()}  {name}\n" for name, picture in pictures().items())
    }


def pictures() -> dict[str, str]:
    """Name -> a drawing or a trace; of them the golden file has a digest."""
    return {
        "pipeline": pipeline_picture(view_of()),
        "weights": pipeline_picture(view_of(schedule="zb1p", chunks=1)),
        "both ways": pipeline_picture(view_of(schedule="dualpipev")),
        "over": pipeline_picture(view_of(bound=20_000.0)),
        "seconds": pipeline_picture(view_of(units=SECONDS_AND_BYTES)),
        "without bound": pipeline_picture(view_of(bound=float("inf"))),
        "long": pipeline_picture(view_of(microbatches=120)),
        "short of room": pipeline_picture(view_of(microbatches=60, most_operations=300)),
        "many stages": pipeline_picture(view_of(problem_of(stages=64, chunks=1, microbatches=4, schedule="1f1b"))),
        "more stages": pipeline_picture(view_of(problem_of(stages=70, chunks=1, microbatches=4, schedule="1f1b"))),
        "uneven": pipeline_picture(view_of(each=7)),
        "trace": perfetto.perfetto(view_of()),
        "chart": chart(),
        "rehearsal": rehearse_picture.picture(rehearsal()),
        "diagnosis": "".join(str(getattr(diagnosis_picture, name)(diagnosis_view())) for name in ("parts", "course", "ranks")),
    }


if __name__ == "__main__" and "--update-golden" in sys.argv:
    (GOLDEN / "more").mkdir(exist_ok=True)
    for name, content in reports().items():
        (GOLDEN / "more" / name).write_text(content, encoding="utf-8")
