"""Networks are judged: what is wrong is said with its reason, and what is not known makes no finding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.draws import examples

from meshwright.diagnose.bandwidth import CLIFF, cliff, judge_table, plateau_bytes_per_s, reached
from meshwright.diagnose.network import Surroundings, judge_setup
from meshwright.domain.observed import Bandwidth, Bandwidths, NetworkSetup, Place, Sign


def setup(**given: object) -> NetworkSetup:
    return NetworkSetup(file="log", format="nccl_debug", **given)


def sign(id: str, line: int = 3, text: str = "", value: float | None = None) -> Sign:
    return Sign(id=id, place=Place(file="log", line=line), text=text, value=value)


def ids(judged: tuple) -> list[str]:
    return [each.id for each in judged]


@pytest.mark.parametrize(
    ("given", "reasons", "line"),
    [
        ({"environment": {"NCCL_IB_DISABLE": "1"}, "where": {"NCCL_IB_DISABLE": 5}}, ("environment",), 5),
        ({"signs": (sign("network.no_device"),)}, ("no_device",), 3),
        ({"signs": (sign("network.no_verbs", 4), sign("network.no_plugin"))}, ("no_verbs",), 4),
        ({"signs": (sign("network.no_plugin", 7),)}, ("no_plugin",), 7),
        ({"where": {"network": 9}}, ("unknown",), 9),
    ],
)
def test_tcp_between_nodes_is_said_with_its_reason(given, reasons, line):
    judged = judge_setup(setup(network="Socket", **given))
    assert ids(judged)[0] == "network.tcp"
    assert judged[0].severity == "error"
    assert judged[0].message.values["reasons"] == reasons
    assert judged[0].evidence[0].place == Place(file="log", line=line)


def test_one_node_needs_no_network_and_ethernet_has_no_rdma():
    assert judge_setup(setup(network="Socket", nodes=1)) == ()
    assert judge_setup(setup(network="Socket"), Surroundings(nodes=1)) == ()
    assert judge_setup(setup(network="Socket", nodes=2), Surroundings(rdma=False)) == ()
    assert judge_setup(setup(network="IB", signs=(sign("network.no_plugin"),), transports={"NET/IB/GDRDMA": 4})) == ()


def test_channels_without_gpudirect_are_counted():
    (judged,) = judge_setup(setup(network="IB", transports={"NET/IB": 3, "NET/IB/GDRDMA": 1, "P2P/IPC": 9}, where={"NET/IB": 2}))
    assert (judged.id, judged.evidence[0].place.line) == ("network.not_direct", 2)
    assert (judged.message.values["without"], judged.message.values["all"]) == (3, 4)


def test_a_switch_that_could_reduce_and_does_not_is_a_finding_only_where_it_can():
    silent = setup(network="IB", channels={"nvls": 0})
    assert ids(judge_setup(silent, Surroundings(multicast=True, devices_per_node=8))) == ["network.no_multicast"]
    assert judge_setup(silent, Surroundings(multicast=True, devices_per_node=1)) == ()
    assert judge_setup(silent) == ()
    assert judge_setup(setup(channels={"collective": 4}), Surroundings(multicast=True)) == (), "an old form does not say"


def test_shared_memory_is_worse_the_more_is_known():
    shared = {"transports": {"SHM": 2, "P2P/IPC": 6}}
    assert [each.severity for each in judge_setup(setup(**shared))] == ["advice"]
    assert [each.severity for each in judge_setup(setup(**shared), Surroundings(nvlink=True))] == ["warning"]
    assert judge_setup(setup(**shared), Surroundings(nvlink=False)) == ()


def test_overrides_and_complaints_are_said():
    judged = judge_setup(
        setup(
            network="IB",
            environment={"NCCL_ALGO": "Ring", "NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "TRACE", "NCCL_SHM_DISABLE": "0"},
            interfaces=("mlx5_0:1/IB", "mlx5_bond_0:1/RoCE"),
            bandwidth_bytes_per_s=1e9,
            signs=(sign("network.completion", text="status=12", value=12.0),),
        ),
        Surroundings(adapters_per_node=8, link_bytes_per_s=50e9),
    )
    assert ids(judged) == [
        "network.switched_off",
        "network.completion",
        "network.pinned",
        "network.debugging",
        "network.storage_adapter",
        "network.adapters",
        "network.believed",
    ]
    assert all(str(each.message) for each in judged)


def table(rates: list[float], **given: object) -> Bandwidths:
    return Bandwidths(
        file="t",
        format="nccl_tests",
        rows=tuple(
            Bandwidth(
                operation="AllReduce",
                message_bytes=2.0**at,
                time_s=None,
                algorithm_bytes_per_s=rate / 2,
                bus_bytes_per_s=rate,
                line=at,
                in_place=False,
            )
            for at, rate in enumerate(rates)
        ),
        **given,
    )


@examples(80)
@given(st.lists(st.floats(1, 1e12), min_size=1, max_size=30))
def test_a_cliff_is_where_the_rate_falls_below_half_of_the_best_before(rates):
    found = cliff(table(rates).rows)
    falls = [at for at in range(len(rates)) if at and rates[at] < CLIFF * max(rates[:at])]
    assert (found is None) == (not falls)
    if found:
        assert found[1].line == falls[0]
        assert found[0].bus_bytes_per_s == max(rates[: falls[0]])


def test_a_plateau_is_no_mean_over_sizes_and_is_compared_with_the_link():
    rows = table([1.0] * 24 + [1e9, 2e9, 300e9, 480e9, 470e9])
    assert plateau_bytes_per_s(rows) == 480e9
    known = Surroundings(nodes=2, link_bytes_per_s=1000e9)
    (judged,) = judge_table(rows, known)
    assert (judged.id, judged.severity) == ("bandwidth.plateau", "warning")
    assert judge_table(rows, Surroundings(nodes=2, link_bytes_per_s=500e9)) == ()
    assert judge_table(rows, Surroundings(nodes=1, link_bytes_per_s=1000e9)) == ()
    assert judge_table(table([1e9, 2e9]), known) == (), "small messages fill no link"


def test_the_links_of_all_devices_of_a_node_carry_a_ring():
    rates = [1.0] * 26 + [300e9]
    per_device = Surroundings(nodes=2, devices_per_node=8, link_bytes_per_s=50e9)
    (judged,) = judge_table(table(rates, ranks=16), per_device)
    assert judged.message.values["reach"] == 400.0
    assert judged.severity == "advice"
    assert judge_table(table(rates, ranks=8), per_device) == (), "within a node"
    assert judge_table(table(rates, ranks=4, nodes=4), per_device) == (), "one device of each node"
    assert judge_table(table(rates)) == (), "no link is known"


def test_many_tries_of_one_size_are_their_median():
    tries = Bandwidths(file="t", format="allreduce_bench", rows=tuple(
        Bandwidth(operation="AllReduce", message_bytes=4e9, time_s=None, algorithm_bytes_per_s=rate, bus_bytes_per_s=rate)
        for rate in (1e9, 2e9, 100e9, 101e9, 102e9, 103e9, 104e9)))
    assert plateau_bytes_per_s(tries) == 101e9
    assert judge_table(tries) == (), "a slow first try is no cliff"


@given(st.lists(st.tuples(st.sampled_from(["AllReduce", "AllGather"]), st.integers(1, 2**34), st.floats(1e6, 1e12)), min_size=1))
def test_every_operation_of_a_table_is_said_with_its_fastest_size(drawn):
    by_size = {(operation, size): rate for operation, size, rate in drawn}
    rows = tuple(
        Bandwidth(operation=operation, message_bytes=float(size), time_s=None, algorithm_bytes_per_s=rate, bus_bytes_per_s=rate)
        for (operation, size), rate in by_size.items()
    )
    found = reached([Bandwidths(file="log", format="nccl_tests", rows=rows, ranks=8)])
    assert {each.operation for each in found} == {operation for operation, _ in by_size}
    for each in found:
        best = max(rate for (operation, _), rate in by_size.items() if operation == each.operation)
        assert each.bus_bytes_per_s == best == by_size[each.operation, int(each.message_bytes)]
        assert each.ranks == 8
