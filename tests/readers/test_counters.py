"""Samples of nvidia-smi and DCGM in the forms that drivers print."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.sources import reads, survives

from meshwright.readers.counters import dcgm, dmon, nvidia_smi

CSV = """\
timestamp, name, uuid, utilization.gpu [%], power.draw [W], clocks.current.sm [MHz], memory.used [MiB], clocks_event_reasons.active
2026/01/02 03:04:05.000, NVIDIA H100 80GB HBM3, GPU-aa, 100 %, 690.5 W, 1980 MHz, 70000 MiB, 0x0000000000000004
2026/01/02 03:04:05.001, NVIDIA H100 80GB HBM3, GPU-bb, 0 %, [N/A], 1980 MHz, [Not Supported], 0x0000000000000000
2026/01/02 03:04:15.000, NVIDIA H100 80GB HBM3, GPU-aa, 50 %, 400.5 W, 1200 MHz, 70000 MiB, 0x00000000000000E8
"""


def test_cells_have_units_and_may_be_missing(tmp_path):
    (found,) = reads(nvidia_smi.FORMAT, tmp_path, CSV)
    first, second = found.devices
    assert (first.device, first.name, first.samples, first.period_s) == ("GPU-aa", "NVIDIA H100 80GB HBM3", 2, 10.0)
    assert first.means["utilization_ratio"] == 0.75
    assert (first.least["clock_hz"], first.most["power_w"], first.means["memory_used_bytes"]) == (1.2e9, 690.5, 70000 * 2**20)
    assert first.throttled == {"software power cap": 1, "hardware slowdown": 1, "software thermal": 1, "hardware thermal": 1,
                               "power brake": 1}
    assert set(second.means) == {"utilization_ratio", "clock_hz"}


def test_devices_without_a_name_are_told_by_their_order_at_a_time(tmp_path):
    text = "timestamp, utilization.gpu [%], clocks_throttle_reasons.hw_slowdown\n" + "".join(
        f"2026/01/02 03:04:{second:02}.{device}00, {10 * device + 10}, {'Active' if device else 'Not Active'}\n"
        for second in (5, 10) for device in range(3))
    (found,) = reads(nvidia_smi.FORMAT, tmp_path, text)
    assert [(each.device, each.samples, each.means["utilization_ratio"]) for each in found.devices] == [
        ("0", 2, 0.1), ("1", 2, 0.2), ("2", 2, pytest.approx(0.3))]
    assert found.devices[1].throttled == {"hardware slowdown": 2}


def test_dcgmi_dmon_has_its_own_columns(tmp_path):
    (found,) = reads(dmon.FORMAT, tmp_path, """\
#Entity   GPUTL  SMACT  TENSO  POWER  FBUSD
ID                             W
GPU 0     100    0.500  0.250  600.5  1000
GPU 1     N/A    0.100  N/A    9223372036854775794  1000
#Entity   GPUTL  SMACT  TENSO  POWER  FBUSD
GPU 0     50     0.700  0.350  400.5  1000
""")
    first, second = found.devices
    assert (first.device, first.samples, first.means["utilization_ratio"], first.means["power_w"]) == ("0", 2, 0.75, 500.5)
    assert first.means["tensor_active_ratio"] == pytest.approx(0.3)
    assert set(second.means) == {"sm_active_ratio", "memory_used_bytes"}


def test_fields_of_dcgm_that_come_again_are_the_next_sample(tmp_path):
    line = 'DCGM_FI_DEV_GPU_UTIL{{gpu="0",Hostname="{host}",modelName="NVIDIA H100"}} {value}\n'
    text = line.format(host="a", value=80) + line.format(host="b", value=10) + line.format(host="a", value=100)
    text += 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",Hostname="a"} 0.5\nDCGM_FI_DEV_POWER_USAGE{gpu="0",Hostname="a"} 2147483632\n'
    (found,) = reads(dcgm.FORMAT, tmp_path, text)
    first, second = found.devices
    assert (first.host, first.name, first.samples, first.means) == ("a", "NVIDIA H100", 2,
                                                                    {"utilization_ratio": 0.9, "tensor_active_ratio": 0.5})
    assert (second.host, second.samples) == ("b", 1)


def test_a_table_of_dcgms_fields(tmp_path):
    (found,) = reads(dcgm.FORMAT, tmp_path, """\
timestamp,Hostname,GPU-Id,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_DEV_POWER_USAGE,DCGM_FI_PROF_SM_ACTIVE
1,a,0,50,400,9223372036854775794
1,a,1,100,600,0.5
2,a,0,100,500,0.25
""")
    assert [(each.device, each.samples, each.means["utilization_ratio"]) for each in found.devices] == [
        ("0", 2, 0.75), ("1", 1, 1.0)]
    assert found.devices[0].means["sm_active_ratio"] == 0.25


WHOLE = [(nvidia_smi.FORMAT, CSV), (dmon.FORMAT, "# gpu   pwr  temp    sm\n# Idx     W     C     %\n    0   111    83    25\n"),
         (dcgm.FORMAT, 'DCGM_FI_DEV_SM_CLOCK{gpu="0", UUID="GPU-604"} 139\nDCGM_FI_DEV_SM_CLOCK{gpu="0"} 1e300\n')]


@settings(examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), which=st.integers(0, 2))
def test_scrambled_samples_are_finite_or_one_line(tmp_path, data, which):
    format, text = WHOLE[which]
    content = bytearray(text.encode())
    for _ in range(data.draw(st.integers(0, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(format, tmp_path, bytes(content[: data.draw(st.integers(0, len(content)))]) + data.draw(st.binary(max_size=20)))
