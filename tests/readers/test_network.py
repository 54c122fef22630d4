"""Short excerpts of what NCCL, RCCL and bandwidth benchmarks print, and the same broken off, mixed and scrambled."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.draws import examples
from tests.readers.sources import reads, survives

from meshwright.diagnose.bandwidth import judge_table
from meshwright.readers.network import allreduce_bench, nccl_debug, nccl_inspector, nccl_tests, nccl_tests_json
from meshwright.readers.network.rates import bus_factor, ranks_of

DEBUG = """\
starting training on 16 devices
[rank0]:node-a:100:200 [0] NCCL INFO cudaDriverVersion 12040
NCCL version 2.21.5+cuda12.4
node-a:100:200 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_bond_0:1/RoCE [RO]; OOB eth0:10.0.0.1<0>
node-a:100:200 [0] NCCL INFO Using network IBext_v8
node-a:100:200 [0] NCCL INFO NCCL_ALGO set by environment to Ring
node-a:100:200 [0] NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'
1: node-b:300:400 [1] NCCL INFO comm 0x55aa rank 9 nRanks 16 nNodes 2 localRanks 8 localRank 1 MNNVL 0
node-a:100:200 [0] NCCL INFO comm 0x66bb rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
iteration 1 loss 2.5
node-a:100:200 [0] NCCL INFO Trees [0] 1/8/-1->0->-1 [1] 1/-1/-1->0->8
node-a:100:200 [0] NCCL INFO Channel 00/16 :    0   1   2   3
node-a:100:200 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [send] via NET/IBext_v8/0(3)/GDRDMA/Shared
node-a:100:200 [0] NCCL INFO Channel 01/0 : 7[7] -> 8[0] [send] via NET/IBext_v8/1
node-a:100:200 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-a:100:200 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
node-a:100:200 [0] NCCL INFO 24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer
node-a:100:200 [0] NCCL INFO ncclCommInitRank comm 0x66bb rank 0 nranks 16 cudaDev 0 busId 1000 commId 0xabc1 - Init COMPLETE
node-b:300:400 [1] NCCL INFO ncclCommInitRank comm 0x55aa rank 9 nranks 16 cudaDev 1 busId 2000 commId 0xabc1 - Init COMPLETE
node-a:100:200 [0] NCCL INFO ncclCommSplit comm 0x77cc rank 0 nranks 4 cudaDev 0 nvmlDev 0 busId 1000 commId 0xdef2 - Init COMPLETE
node-b:300:401 [1] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<44> with status=12 opcode=0 vendor err 129
node-b:300:402 [1] net_ib.cc:1295 NCCL WARN NET/IB : Got completion from peer 10.0.0.1<45> with status=12 opcode=0 vendor err 129
"""

TABLE = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
# Collective test starting: all_gather_perf
# Using devices
#  Rank  0 Group  0 Pid    100 on node-a device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid    101 on node-a device  1 [0000:2a:00] NVIDIA H100 80GB HBM3
#  Rank  2 Group  0 Pid    102 on node-b device  0 [0000:18:00] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
        1024            16     float    none      -1    10.00    0.10    0.07    N/A    20.00    0.05    0.03    N/A
        2048            32  bfloat16    none      -1    10.00    0.20    0.13    N/A    10.00    0.20
# Avg bus bandwidth    : 99.99
"""


def test_everything_that_nccl_says_is_heard(tmp_path):
    (setup,) = reads(nccl_debug.FORMAT, tmp_path, DEBUG)
    assert (setup.network, setup.version, setup.world, setup.nodes) == ("IBext_v8", "NCCL 2.21.5+cuda12.4", 16, 2)
    assert setup.interfaces == ("mlx5_0:1/IB", "mlx5_1:1/IB", "mlx5_bond_0:1/RoCE")
    assert setup.transports == {"NET/IBext_v8/GDRDMA": 1, "NET/IBext_v8": 1, "P2P/CUMEM": 1, "SHM": 1}
    assert setup.channels == {"collective": 24, "collnet": 24, "nvls": 0, "point-to-point": 32}
    assert setup.communicators == ((16, 2), (4, 0)), "each once, however many ranks say so"
    assert (setup.environment, setup.direct, setup.forwarded) == ({"NCCL_ALGO": "Ring"}, True, 1)
    (sign,) = [each for each in setup.signs if each.id == "network.completion"]
    assert (sign.times, sign.value, sign.place.line) == (2, 12.0, DEBUG[: DEBUG.index("status=12")].count("\n") + 1)
    assert setup.where["network"] == DEBUG[: DEBUG.index("Using network")].count("\n") + 1


@pytest.mark.parametrize(("via", "kind"), [
    ("via P2P/IPC comm 0x7f00 nRanks 08", "P2P/IPC"), ("via P2P/direct pointer/read", "P2P/direct pointer"),
    ("via direct shared memory", "SHM"), ("[send] via NET/AWS Libfabric/3/GDRDMA", "NET/AWS Libfabric/GDRDMA"),
    ("[receive] via NET/Socket/0 comm 0x7f nRanks 16", "NET/Socket"), ("[send] via NET/IB/8(4)/GDRDMA(PCI)", "NET/IB/GDRDMA"),
])
@pytest.mark.parametrize("ranks", ["Channel 04/0 : 9[1] -> 10[2]", "Channel 00 : 9[c1000] -> 10[c6000]", "Ring 00 : 9 -> 10"])
def test_channels_of_all_versions_are_told_apart(tmp_path, ranks, via, kind):
    (setup,) = reads(nccl_debug.FORMAT, tmp_path, f"h:1:2 [0] NCCL INFO {ranks} {via}\n")
    assert (dict(setup.transports), setup.world) == ({kind: 1}, 11)


def test_rows_carry_their_operation_and_the_average_is_left_alone(tmp_path):
    (table,) = reads(nccl_tests.FORMAT, tmp_path, TABLE)
    assert (table.ranks, table.nodes) == (3, 2)
    assert [(each.operation, each.message_bytes, each.in_place, round(each.bus_bytes_per_s)) for each in table.rows] == [
        ("AllGather", 1024, False, 70_000_000), ("AllGather", 1024, True, 30_000_000), ("AllGather", 2048, False, 130_000_000)]
    assert [each.time_s for each in table.rows] == pytest.approx([10e-6, 20e-6, 10e-6])


def test_wrong_results_are_a_sign(tmp_path):
    lines = "1024 16 float sum -1 10.0 0.10 0.07 {} 20.0 0.05 0.03 {}\n"
    (table,) = reads(nccl_tests.FORMAT, tmp_path, lines.format(0, "N/A") + lines.format(7, 0) + lines.format(3, 1))
    (sign,) = table.signs
    assert (sign.id, sign.times, sign.value, sign.place.line) == ("bandwidth.wrong", 3, 7.0, 2)
    assert [(each.id, each.severity) for each in judge_table(table)] == [("bandwidth.wrong", "error")]


@pytest.mark.parametrize("ranks", [2, 3, 8, 24, 64])
@pytest.mark.parametrize("operation", ["AllReduce", "AllGather", "ReduceScatter"])
def test_two_rates_tell_the_ranks(operation, ranks):
    rates = [(algorithm, round(algorithm * bus_factor(operation, ranks), 2), 0.005, 0.005) for algorithm in (0.3, 17.0, 400.0)]
    low, high = ranks_of(rates, operation)
    assert low <= ranks <= high
    assert high - low <= ranks // 20
    assert ranks_of(rates, "Broadcast") is None


def test_json_of_nccl_tests_is_the_same_and_may_break_off(tmp_path):
    rows = [{"size": 2**at, "count": 1, "type": "float", "redop": "sum", "root": "    -1",
             "out_of_place": {"time": 10.0, "alg_bw": 1.0 * at, "bus_bw": 1.5 * at, "nwrong": 0.0},
             "in_place": {"time": 10.0, "alg_bw": "nan", "bus_bw": 2.0, "nwrong": None}} for at in range(10, 14)]
    devices = [{"rank": rank, "hostname": f"node-{rank // 2}"} for rank in range(4)]
    text = json.dumps({"version": 3, "args": ["./build/all_reduce_perf", "-g", "1"], "config": {"nthreads": 1, "devices": devices},
                       "results": rows, "errors": []})
    (table,) = reads(nccl_tests_json.FORMAT, tmp_path, text)
    assert (table.ranks, table.nodes, len(table.rows), table.rows[-1].operation) == (4, 2, 4, "AllReduce")
    assert table.rows[-1].bus_bytes_per_s == 19.5e9
    (cut,) = reads(nccl_tests_json.FORMAT, tmp_path, text[: text.index('"size": 8192') + 30])
    assert cut.rows == table.rows[:3]
    assert "breaks off" in cut.notes[0]


def test_the_bench_of_all_reduce_in_its_later_forms(tmp_path):
    (table,) = reads(allreduce_bench.FORMAT, tmp_path, """\
The average bandwidth of all_reduce over 16 ranks (5 warmups / 20 trials):

| payload |    busbw   |    algbw   |
| ------: | ---------: | ---------: |
|    32KB |   0.92GBps |   0.49GBps |
|     4GB | 449.00GBps | 239.47GBps |
""")
    assert (table.ranks, [each.message_bytes for each in table.rows]) == (16, [2**15, 2**32])
    assert table.rows[1].bus_bytes_per_s == 449e9
    (mean,) = reads(allreduce_bench.FORMAT, tmp_path, """\
[node:0]:The average bandwidth of all_reduce with a 4.0GB payload (5 trials, 16 ranks):
[node:0]: algbw: 44.947 GBps (359.6 Gbps)
[node:0]: busbw: 84.275 GBps (674.2 Gbps)
""")
    assert (mean.rows[0].message_bytes, mean.rows[0].bus_bytes_per_s, mean.ranks) == (4e9, 84.275e9, 16)


def test_the_bench_of_all_reduce_counts_bits_and_each_byte_twice(tmp_path):
    """A payload of 4 GB in half a second on 4 ranks: 128 Gbps as it counts, 96 of them on the bus."""
    whole = " duration: 0.5 sec\n algo throughput: 128000000000.0 bps, 128.0 Gbps\n busbw: 96.0  Gbps\n"
    (table,) = reads(allreduce_bench.FORMAT, tmp_path, f"0:\n{whole} busbw: 95.0  Gbps\n")
    first, second = table.rows
    assert (table.ranks, first.message_bytes, first.time_s) == (4, 4e9, 0.5)
    assert (first.algorithm_bytes_per_s, first.bus_bytes_per_s, second.bus_bytes_per_s) == (8e9, 12e9, 95e9 / 8)


def inspected(operation: str, size: int, bus: float) -> str:
    return json.dumps({"header": {"id": "0x1", "rank": 2, "n_ranks": 8, "nnodes": 1}, "metadata": {}, "coll_perf": {
        "coll": operation, "coll_sn": 7, "coll_msg_size_bytes": size, "coll_exec_time_us": 1000, "coll_timing_source": "kernel_cpu",
        "coll_algobw_gbs": bus / 1.75, "coll_busbw_gbs": bus}})


def test_inspectors_records_that_are_alike_are_one(tmp_path):
    lines = [inspected("AllReduce", 2**20, 100.0), inspected("AllReduce", 2**20, 200.0), inspected("AllGather", 2**20, 50.0)]
    (table,) = reads(nccl_inspector.FORMAT, tmp_path, "\n".join([*lines, '{"coll_perf": ']))
    assert [(each.operation, each.count, each.bus_bytes_per_s) for each in table.rows] == [
        ("AllReduce", 2, 150e9), ("AllGather", 1, 50e9)]
    assert [note.split()[0] for note in table.notes] == ["the", "1", "3"]


def test_inspectors_other_form(tmp_path):
    labels = 'version="v5.1",node="n",gpu="GPU0",comm_name="DP Group 0",n_nodes="2",nranks="16",collective="AllReduce",' \
             'message_size="4-5GB",algo_proto="Ring_ll"'
    (table,) = reads(nccl_inspector.FORMAT, tmp_path, f"nccl_bus_bandwidth_gbs{{{labels}}} 678.263\n"
                                                      f"nccl_collective_exec_time_microseconds{{{labels}}} 9498.47\n")
    (row,) = table.rows
    assert (row.group, row.ranks, row.message_bytes, table.nodes) == ("DP Group 0", 16, 4.5 * 2**30, 2)
    assert (row.bus_bytes_per_s, row.algorithm_bytes_per_s) == (678.263e9, 678.263e9 / 1.875)


TEXTS = {nccl_debug.FORMAT.name: (nccl_debug.FORMAT, DEBUG), nccl_tests.FORMAT.name: (nccl_tests.FORMAT, TABLE),
         allreduce_bench.FORMAT.name: (allreduce_bench.FORMAT,
                                       " duration: 1.5 sec\n algo throughput: 9000.0 bps, 0.0 Gbps\n busbw: 5.5  Gbps\n" * 3),
         nccl_inspector.FORMAT.name: (nccl_inspector.FORMAT, inspected("AllReduce", 2**20, 1.0) + "\n"),
         nccl_tests_json.FORMAT.name: (nccl_tests_json.FORMAT, '{"results": [{"size": 1, "in_place": {"time": 1, "alg_bw": 1e999, '
                                                               '"bus_bw": 2}}], "args": ["x"]}')}


@pytest.mark.parametrize("name", TEXTS)
@settings(examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_the_file_becomes_figures_are_finite_or_one_line_says_why_not(tmp_path, name, data):
    format, text = TEXTS[name]
    content = bytearray(text.encode())
    cut = data.draw(st.integers(0, len(content)))
    for _ in range(data.draw(st.integers(0, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    survives(format, tmp_path, bytes(content[:cut]) + data.draw(st.binary(max_size=40)))


@settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(0, len(DEBUG.splitlines()) - 1), max_size=40))
def test_lines_of_many_ranks_in_any_order_say_the_same(tmp_path, order):
    lines = DEBUG.splitlines()
    (setup,) = reads(nccl_debug.FORMAT, tmp_path, "\n".join([lines[at] for at in order] + lines))
    (plain,) = reads(nccl_debug.FORMAT, tmp_path, DEBUG)
    assert (setup.network, setup.world, setup.nodes, set(setup.communicators)) == (
        plain.network, plain.world, plain.nodes, set(plain.communicators))
    assert set(setup.transports) == set(plain.transports)
