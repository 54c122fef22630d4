"""The device computes, but slowly or on the wrong thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from meshwright.diagnose.finding import Evidence, Finding, severity_of
from meshwright.diagnose.remedies import remedies
from meshwright.domain.observed import Place
from meshwright.errors import Message
from meshwright.words import percent, seconds

if TYPE_CHECKING:
    from meshwright.diagnose.run import Run

LOW_MFU = 0.20
"""Below it, without a prediction to compare with, somebody should look: our judgement."""
TOO_GOOD = 0.80
"""Above it the peak, the precision or the convention is another one: our judgement."""
OPTIMIZER_RATIO = 0.10
"""Our judgement."""
ALIKE = 0.05
"""A clock that is so much lower than the others' median is another one (Ascend/mstt: 5 %)."""
THROTTLED = 0.05
"""Share of samples: our judgement."""


def compute(run: Run) -> Iterator[Finding]:
    """MFU that is too low, or too good to be true."""
    mfu = run.mfu_ratio
    if mfu is None or run.log is None or run.steady is None:
        return
    place = Place(file=run.log.file, line=run.steady.steps[0].line)
    if mfu > TOO_GOOD:
        yield Finding(
            message=Message(
                "mfu.implausible",
                "{mfu} of the peak is more than dense training reaches: is the peak that of another precision "
                "or device, or does the log count recomputed work?",
                {"mfu": percent(mfu)},
            ),
            severity="advice",
            evidence=(Evidence(f"step {seconds(run.steady.step_s)}", place),),
        )
    elif mfu < LOW_MFU and run.facts is None:
        yield Finding(
            message=Message(
                "mfu.low",
                "{mfu} of the peak: far below what layouts of large models reach; a model, a cluster and a layout "
                "beside the log would say what is to be expected",
                {"mfu": percent(mfu)},
            ),
            severity="warning",
            evidence=(Evidence(f"step {seconds(run.steady.step_s)}", place),),
            remedies=remedies("mfu.low", run.framework),
        )


def optimizer(run: Run) -> Iterator[Finding]:
    """An optimizer step that is long beside the step."""
    split = run.split
    if split is None or split.optimizer_ratio is None or split.optimizer_ratio < OPTIMIZER_RATIO or run.log is None:
        return
    assert run.steady is not None, "an optimizer's share comes from timers"
    yield Finding(
        message=Message("optimizer.slow", "the optimizer takes {share} of the step", {"share": percent(split.optimizer_ratio)}),
        severity=severity_of(split.optimizer_ratio),
        loss_ratio=split.optimizer_ratio,
        remedies=remedies("optimizer.slow", run.framework),
        evidence=tuple(
            Evidence(f"timer {name}: {seconds(spent)}", Place(file=run.log.file, line=run.steady.steps[0].line))
            for name, spent in run.steady.parts.items()
            if "optim" in name or name in ("step", "step_microstep")
        ),
    )


def devices(run: Run) -> Iterator[Finding]:
    """Devices that are throttled, or slower than their like."""
    for counters in run.counters:
        for each in counters.devices:
            for reason, samples in each.throttled.items():
                if each.samples and samples / each.samples > THROTTLED:
                    yield Finding(
                        message=Message(
                            "device.throttled",
                            "device {device}{host} is held back in {share} of the samples: {reason}",
                            {
                                "device": each.device,
                                "host": f" of {each.host}" * bool(each.host),
                                "share": percent(samples / each.samples),
                                "reason": reason,
                            },
                        ),
                        severity="warning",
                        evidence=(Evidence(f"{samples} of {each.samples} samples", Place(file=counters.file)),),
                        remedies=remedies("device.throttled", run.framework),
                    )
        clocks = {each.device: each.means["clock_hz"] for each in counters.devices if each.means.get("clock_hz")}
        if len(clocks) > 1 and min(clocks.values()) < (1.0 - ALIKE) * sorted(clocks.values())[len(clocks) // 2]:
            slow = min(clocks, key=lambda name: clocks[name])
            yield Finding(
                message=Message(
                    "device.slow-clock",
                    "device {device} runs at {clock:.0f} MHz, the median device at {middle:.0f}",
                    {"device": slow, "clock": clocks[slow] / 1e6, "middle": sorted(clocks.values())[len(clocks) // 2] / 1e6},
                ),
                severity="warning",
                evidence=(Evidence("mean clocks of the samples", Place(file=counters.file)),),
                remedies=remedies("device.throttled", run.framework),
            )
