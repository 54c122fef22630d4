"""The guide's way on paper: what is said of its end follows from what is printed beside it."""

from __future__ import annotations

import re
from dataclasses import replace

from report_samples import estimate, text

from meshwright.judging.walk import GuidedStep
from meshwright.report.guided import guided_report


def test_how_much_slower_the_guides_end_is_follows_from_the_figures_beside_it():
    best = replace(estimate(), memory_fit_probability=0.98)
    end = replace(estimate(factor=1.05), memory_fit_probability=0.80)
    step = GuidedStep(
        step="end", rule="chatlearn.one", source="000:21", says="one", choice="tp8", estimate=end, searched="tp8",
        loss_ratio=end.expected_step_s / best.expected_step_s - 1.0,
    )
    words = " ".join(text(guided_report([step], best), 140).split())
    found = re.search(r"the guide ends at .*: ([\d.]+) s expected, ([\d.]+) % slower than plan 1 \(([\d.]+) s\)", words)
    assert found, words
    own, slower, first = map(float, found.groups())
    assert abs(100 * (own / first - 1) - slower) < 0.6, words
