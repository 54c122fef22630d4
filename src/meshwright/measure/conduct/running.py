"""One trial that runs: what it has said by now, and whether it is time to end it."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from meshwright.measure.trial import TOLD
from meshwright.measure.watching import Seen, seen, sizes

if TYPE_CHECKING:
    from pathlib import Path

    from meshwright.measure.chooser import Candidate
    from meshwright.measure.outcome import Outcome
    from meshwright.measure.store import Attempt
    from meshwright.measure.trial import Trial

Why = Literal["", "hang", "timeout", "dying", "enough", "lost", "budget", "interrupt", "withdrawn"]
LOOK_S, PATIENCE, LONGEST_LOOK_S = 0.2, 20.0, 30.0
"""Files are read again no sooner than that, nor than so many times what reading them took, up to the longest: at most a twentieth
of a processor goes into looking. Our judgement."""
LEAST_STEPS, LEFT_STEPS = 5, 2
"""Steps before a trial may be judged, and steps that it may as well take to its end. From 4 steps on the extremes of a sample hold
the median with 1 - 2^(1-n) >= 80 %, ``watching.CONFIDENCE``; one more is our judgement, as is the second."""
PRECISE_RATIO = 0.01
"""Half an interval this narrow decides: it is what counts as better (``tuning.tuner.BETTER``), and half of what runs of the corpus
differ by that were measured again (2 %, ``tuning.steps.NOISE``)."""
LOST_RATIO = 1.1
"""A trial whose interval is so much above that of the best will not win: five times that noise, so that neither a drift of the
machine between the two nor the rest of its steps turns it round. Our judgement."""


@dataclass(kw_only=True)
class Running:
    """A trial between its start and its end; seconds on the clock of ``time.monotonic``."""

    candidate: Candidate
    trial: Trial
    attempt: Attempt
    handle: str
    folder: Path
    submitted: float = field(default_factory=time.monotonic)
    begun: float | None = None
    """When it left the queue."""
    nodes: tuple[str, ...] = ()
    waits_for: str = ""
    """What a scheduler has said last of why it waits."""
    now: Seen = field(default_factory=Seen)
    why: Why = ""
    """Why it was ended from here; empty while it runs, and where it ended by itself."""
    said: str = ""
    """The same in words."""
    ended_at: float | None = None
    """When it was told to end."""
    _grown: tuple[int, ...] = ()
    _sizes: tuple[int, ...] = ()
    _changed: float = 0.0
    _stepped: float = 0.0
    _dying: float | None = None
    _look_after: float = 0.0

    def begins(self, now: float) -> None:
        """It has left the queue."""
        if self.begun is None:
            self.begun = self._changed = self._stepped = now

    @property
    def waits(self) -> bool:
        """Whether it has not begun, and nobody has told it to end."""
        return self.begun is None and not self.why

    def told_to_end(self, why: Why, said: str) -> None:
        """It is told to end: noted beside it first, for whoever goes on if this process is killed before it has ended.

        Holds:   a folder that takes no more files takes no note; the trial is told to end all the same.
        """
        self.why, self.said, self.ended_at = why, said, time.monotonic()
        with suppress(OSError):
            new = self.folder / f"{TOLD}.new"
            new.write_text(json.dumps({"why": why, "said": said}), encoding="utf-8")
            new.rename(self.folder / TOLD)

    def recall(self) -> bool:
        """Of a trial that another process has started: whether, and why, that one had told it to end."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            told = json.loads((self.folder / TOLD).read_bytes())
            if told["why"] in get_args(Why) and told["why"]:
                self.why, self.said, self.ended_at = told["why"], str(told["said"]), time.monotonic()
                self.now = seen(self.folder)
        return bool(self.why)

    def look(self, now: float, *, at_once: bool = False) -> bool:
        """Read what is new -> whether a step is; ``at_once``: however short ago it was read."""
        found = sizes(self.folder)
        if found != self._grown:
            self._grown, self._changed = found, now
        if found == self._sizes or (now < self._look_after and not at_once):
            return False
        self._sizes = found
        began, steps = time.monotonic(), self.now.steps
        self.now = seen(self.folder)
        took = time.monotonic() - began
        self._look_after = now + min(max(LOOK_S, PATIENCE * took), LONGEST_LOOK_S)
        if not self.now.dying:
            self._dying = None
        elif self._dying is None or self.now.steps > steps:
            self._dying = now
        if self.now.steps > steps:
            self._stepped = now
            return True
        return False

    def due(self, now: float, best: Outcome | None) -> tuple[Why, str]:
        """Why it should end now, and in words; empty while it should not.

        Holds:   what hangs is said to hang, also where nobody looked before its whole time was over; not where a process was
                 killed: the others hang for that.
        """
        if self.begun is None:
            return "", ""
        limits = self.trial.limits
        late: tuple[Why, str] = ("", "")
        if now - self.begun > limits.total_s:
            late = "timeout", f"not done within {limits.total_s:g} s"
        if self._dying is not None and now - self._dying > limits.dying_s:
            return "dying", self.now.dying
        if not self.now.steps:
            if now - self.begun > limits.first_step_s:
                return self._hangs(f"no step within {limits.first_step_s:g} s of its start")
            return late
        if self.trial.steps is not None and self.now.steps >= self.trial.steps and now - self._stepped > limits.silence_s:
            return "enough", f"did not end by itself within {limits.silence_s:g} s of its last step"
        if now - self._changed > limits.silence_s:
            return self._hangs(f"silent for {limits.silence_s:g} s after step {self.now.steps}")
        if now - self._stepped > limits.step_s:
            return self._hangs(f"no step within {limits.step_s:g} s after step {self.now.steps}")
        if late[0] or self.now.dying:  # what a rank has died of is its class, however slow it was
            return late
        return self._decided(best)

    def _hangs(self, said: str) -> tuple[Why, str]:
        return ("dying", self.now.killed) if self.now.killed else ("hang", said)

    def _decided(self, best: Outcome | None) -> tuple[Why, str]:
        interval, step_s, counted = self.now.interval_s, self.now.step_s, len(self.now.steps_s)
        whole = self.trial.whole(interval)
        near_end = self.trial.steps is not None and self.trial.steps - self.now.steps <= LEFT_STEPS
        if self.now.broken:
            return "enough", self.now.broken
        if interval is None or step_s is None or counted < LEAST_STEPS or near_end:
            return "", ""
        half = (interval[1] - interval[0]) / 2 / step_s
        if half <= PRECISE_RATIO:
            return "enough", f"ended after {counted} steps: their median is known to {100 * half:.2g} %"
        if best is not None and best.step_s is not None and whole is not None and (
                whole[0] > LOST_RATIO * (best.interval_s or (0, best.step_s))[1]):
            return "lost", f"ended after {counted} steps: {step_s * self.trial.scale / best.step_s:.2f} times the best"
        return "", ""
