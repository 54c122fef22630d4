"""What a case offers of a device."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strategies import small_case


def test_what_another_program_keeps_is_not_offered():
    case = replace(small_case(), reserve_ratio=0.25)
    assert case.offered_bytes == pytest.approx(0.75 * case.cluster.device.memory_bytes)
