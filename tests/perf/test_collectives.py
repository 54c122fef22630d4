"""Collectives: exact in simple cases, and never faster with more bytes, less bandwidth or more latency."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.catalog import calibration, load_model
from meshwright.domain.mesh import group
from meshwright.perf.arrays import array
from meshwright.perf.collectives import (
    all_gather_s,
    all_reduce_s,
    all_to_all_s,
    network_bytes_per_s,
    point_to_point_s,
    reduce_scatter_s,
    scale_up_bytes_per_s,
)
from meshwright.perf.exchange import hide
from meshwright.perf.expert_exchange import copies_ratio, rank_copies_ratio
from strategies import clusters, examples, small_case

CASE = small_case(devices=64)
CLUSTER, CONSTANTS = CASE.cluster, CASE.calibration.constants
FREE = replace(CONSTANTS, collective_fixed_s=0.0, peer_s=0.0, fabric_slope=0.0)
COLLECTIVES = [all_gather_s, reduce_scatter_s, all_reduce_s, all_to_all_s]


def _quiet(cluster):
    still = {"latency_s": 0.0, "in_network_reduction": False}
    return replace(
        cluster, scale_up=replace(cluster.scale_up, **still), network=replace(cluster.network, **still), oversubscription=1.0
    )


def test_rings_inside_a_node_reach_their_bus_bandwidth():
    cluster, size = _quiet(CLUSTER), 1e9
    eight = group(array(8), 1.0, cluster)
    rate = scale_up_bytes_per_s(cluster, FREE, 8)
    assert float(all_gather_s(size, eight, cluster, FREE)) == pytest.approx(7 / 8 * size / rate)
    assert float(all_reduce_s(size, eight, cluster, FREE)) == pytest.approx(2 * 7 / 8 * size / rate)
    assert float(all_to_all_s(size, eight, cluster, FREE)) == pytest.approx(7 / 8 * size / rate)


def test_a_group_of_one_per_node_has_one_share_of_the_network():
    cluster, size = _quiet(CLUSTER), 1e9
    across = group(array(8), 8.0, cluster)
    assert (float(across.local), float(across.domains)) == (1, 8)
    rate = cluster.network.bytes_per_s * FREE.network_ratio
    assert float(all_gather_s(size, across, cluster, FREE)) == pytest.approx(7 / 8 * size / rate)
    assert float(all_to_all_s(size, across, cluster, FREE)) == pytest.approx(7 / 8 * size / rate)


def test_a_group_that_fills_nodes_uses_all_their_network_cards():
    cluster, size = _quiet(CLUSTER), 1e9
    whole = group(array(64), 1.0, cluster)
    rate = min(scale_up_bytes_per_s(cluster, FREE, 8), 8 * cluster.network.bytes_per_s * FREE.network_ratio)
    assert float(all_gather_s(size, whole, cluster, FREE)) == pytest.approx(63 / 64 * size / rate)


def test_an_all_reduce_of_a_short_message_over_nodes_is_hierarchical():
    """Eight nodes of eight: reduce-scatter inside, tree between, all-gather inside; a ring would wait for 126 network steps."""
    size, whole = 1e6, group(array(64), 1.0, CLUSTER)
    inside, network = scale_up_bytes_per_s(CLUSTER, FREE, 8), CLUSTER.network.bytes_per_s * FREE.network_ratio
    latency = 2 * 7 * CLUSTER.scale_up.latency_s + 2 * 3 * CLUSTER.network.latency_s
    expected = 2 * 7 / 8 * size / inside + 2 * size / 8 / network + latency
    assert float(all_reduce_s(size, whole, CLUSTER, FREE)) == pytest.approx(expected, rel=1e-12)


def test_collectives_in_pieces_start_as_often():
    eight = group(array(8), 1.0, CLUSTER)
    for collective in (all_gather_s, all_reduce_s):
        more = float(collective(1e9, eight, CLUSTER, CONSTANTS, pieces=5.0)) - float(collective(1e9, eight, CLUSTER, CONSTANTS))
        assert more >= 4 * CONSTANTS.collective_fixed_s * (1 - 1e-9)


def test_oversubscription_acts_beyond_a_pod_only():
    cluster = replace(CLUSTER, oversubscription=2.0, pod_devices=16)
    near, far = (network_bytes_per_s(group(array(n), 8.0, cluster), cluster, FREE) for n in (2, 4))
    assert float(near) == 2 * float(far)


def test_switches_that_reduce_help_all_reduce_in_one_domain_only():
    plain = _quiet(CLUSTER)
    able = replace(plain, scale_up=replace(plain.scale_up, in_network_reduction=True))
    inside, outside = group(array(8), 1.0, plain), group(array(64), 1.0, plain)
    assert float(all_reduce_s(1e9, inside, able, FREE)) < float(all_reduce_s(1e9, inside, plain, FREE))
    assert float(all_reduce_s(1e9, outside, able, FREE)) == float(all_reduce_s(1e9, outside, plain, FREE))


def test_peer_to_peer_uses_the_link_that_it_crosses():
    network, inside = (float(point_to_point_s(1e8, crosses=crosses, cluster=CLUSTER, constants=FREE)) for crosses in (1, 0))
    assert network == pytest.approx(CLUSTER.network.latency_s + 1e8 / (CLUSTER.network.bytes_per_s * FREE.network_ratio))
    assert inside < network


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_rank_needs_no_collective(collective):
    assert float(collective(1e12, group(array(1), 1.0, CLUSTER), CLUSTER, CONSTANTS)) == 0.0


def _groups(draw, cluster):
    return group(array(draw(st.integers(1, 128))), float(draw(st.integers(1, 64))), cluster)


@examples(150)
@given(st.data(), clusters(), st.sampled_from(COLLECTIVES), st.floats(0, 1e12), st.floats(1.0, 8.0))
def test_collectives_never_gain_from_more_bytes_or_a_worse_network(data, cluster, collective, size, worse):
    members = _groups(data.draw, cluster)
    constants = calibration("none", cluster.device).constants
    base = float(collective(size, members, cluster, constants))
    assert base >= 0
    assert float(collective(size * worse, members, cluster, constants)) >= base
    for tier in ("scale_up", "network"):
        link = getattr(cluster, tier)
        slow = replace(cluster, **{tier: replace(link, bytes_per_s=link.bytes_per_s / worse)})
        late = replace(cluster, **{tier: replace(link, latency_s=link.latency_s * worse)})
        assert float(collective(size, members, slow, constants)) >= base
        assert float(collective(size, members, late, constants)) >= base
    crowded = replace(cluster, oversubscription=cluster.oversubscription * worse)
    assert float(collective(size, members, crowded, constants)) >= base


@examples(100)
@given(st.data(), clusters(), st.floats(1, 1e12))
def test_an_all_reduce_takes_at_least_its_bytes_and_at_most_two_rings(data, cluster, size):
    members = _groups(data.draw, cluster)
    constants = calibration("none", cluster.device).constants
    reduce = float(all_reduce_s(size, members, cluster, constants))
    ring = 2 * float(reduce_scatter_s(size, members, cluster, constants))
    assert reduce <= ring
    if float(members.ranks) > 1:
        assert reduce >= size / max(
            scale_up_bytes_per_s(cluster, constants, members.local), float(members.local) * cluster.network.bytes_per_s
        ) * (1 - 1 / float(members.ranks))


@examples(100)
@given(st.integers(1, 512), st.integers(1, 64), st.data())
def test_groups_are_placed_without_losing_ranks(ranks, stride, data):
    cluster = data.draw(clusters())
    placed = group(array(ranks), float(stride), cluster)
    local, domains = float(placed.local), float(placed.domains)
    assert 1 <= local <= ranks
    assert local * domains >= ranks > local * (domains - 1)
    assert local == 1 or (local - 1) * stride < cluster.scale_up_devices


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_columns_of_collectives_are_their_scalars(collective):
    ranks, strides = np.array([1.0, 2, 3, 8, 16, 64]), np.array([1.0, 8, 2, 1, 4, 1])
    column = collective(3e8, group(ranks, strides, CLUSTER), CLUSTER, CONSTANTS)
    for index in range(len(ranks)):
        assert column[index] == collective(3e8, group(array(ranks[index]), strides[index], CLUSTER), CLUSTER, CONSTANTS)


def test_one_copy_per_node_sends_fewer_copies():
    mixture = load_model("deepseek-v3").experts
    members = group(array(64), 1.0, CLUSTER)
    assert float(copies_ratio(mixture, members, deduplicated=False)) == 1.0
    ratio = float(copies_ratio(mixture, members, deduplicated=True))
    # Eight copies go to at most four of the eight nodes, one of which is the sender's own in one case of eight.
    assert ratio == pytest.approx(4 * 7 / 8 / (8 * 7 / 8))


@pytest.mark.parametrize(("ranks", "top"), [(2, 1), (2, 4), (4, 3), (8, 2), (3, 5)])
def test_a_rank_gets_one_copy_of_a_token_however_many_of_its_experts_the_token_chose(ranks, top):
    mixture = replace(load_model("qwen3-30b-a3b").experts, experts_per_token=top)
    members = group(array(ranks), 1.0, CLUSTER)
    every = list(product(range(ranks), repeat=top))  # the ranks of a token's experts, all as likely
    for copies, once in ((sum(len(set(each) - {0}) for each in every), True), (sum(top - each.count(0) for each in every), False)):
        routed = sum(top - each.count(0) for each in every)
        assert float(rank_copies_ratio(mixture, members, deduplicated=once)) == pytest.approx(copies / routed)


def test_routing_groups_bound_the_ranks_that_a_token_reaches():
    mixture = load_model("deepseek-v3").experts  # four of eight groups
    ratio = float(rank_copies_ratio(mixture, group(array(8), 1.0, CLUSTER), deduplicated=True))
    assert ratio == pytest.approx(4 * (1 - 0.75**8) / 8)
    assert 0 < ratio < float(rank_copies_ratio(replace(mixture, num_groups=1), group(array(8), 1.0, CLUSTER), deduplicated=True))


@pytest.mark.parametrize("experts", ["qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b"])
def test_copies_of_ranks_are_a_share_that_grows_with_the_ranks(experts):
    mixture, ranks = load_model(experts).experts, array([1.0, 2, 4, 8, 16, 64])
    ratio = rank_copies_ratio(mixture, group(ranks, 1.0, CLUSTER), deduplicated=True)
    assert (np.diff(ratio) >= 0).all()
    assert ratio[0] == pytest.approx(1 / mixture.experts_per_token)
    assert ratio[-1] < 1


@examples(100)
@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0.0, 1.0))
def test_hiding_splits_a_collective_and_loses_nothing(communication, window, ratio):
    exposed, hidden = hide(array(communication), array(window), ratio)
    assert float(exposed) >= 0
    assert 0 <= float(hidden) <= window
    assert float(exposed + hidden) == pytest.approx(communication)


def test_a_group_of_a_full_mesh_uses_its_own_links_only():
    """All-reduce bus bandwidth of 2, 4 and 8 of eight fully meshed devices: one, three and seven links of a device."""
    mesh = _quiet(replace(CLUSTER, scale_up=replace(CLUSTER.scale_up, bytes_per_s=196e9, full_mesh=True)))
    rates = [2 * (n - 1) / n * 1e9 / float(all_reduce_s(1e9, group(array(n), 1.0, mesh), mesh, FREE)) for n in (2, 4, 8)]
    assert rates == pytest.approx([28e9 * links * FREE.scale_up_ratio for links in (1, 3, 7)])
    hop = point_to_point_s(1e9, crosses=0.0, cluster=mesh, constants=FREE)
    assert float(hop) == pytest.approx(1e9 / (28e9 * FREE.scale_up_ratio))
    assert float(all_to_all_s(1e9, group(array(4), 1.0, mesh), mesh, FREE)) == pytest.approx(0.25e9 / (28e9 * FREE.scale_up_ratio))


def test_every_piece_of_a_ring_waits_for_each_of_its_steps():
    """Eight ranks on eight nodes, three pieces: the bytes once, three times seven latencies and three starts."""
    size, constants = 1e6, replace(CONSTANTS, fabric_slope=0.0, collective_fixed_s=2e-5)
    cluster = replace(CLUSTER, network=replace(CLUSTER.network, latency_s=1e-5), oversubscription=1.0)
    rate = cluster.network.bytes_per_s * constants.network_ratio
    found = float(all_gather_s(size, group(array(8), 8.0, cluster), cluster, constants, pieces=3.0))
    assert found == pytest.approx(7 / 8 * size / rate + 3 * (7 * 1e-5 + 2e-5), rel=1e-12)


def test_an_all_reduce_in_one_domain_starts_once_and_sends_nothing_outside():
    """Eight devices of a node: down and up again, seven steps each way."""
    size, constants = 1e8, replace(CONSTANTS, collective_fixed_s=3e-5)
    cluster = replace(CLUSTER, scale_up=replace(CLUSTER.scale_up, in_network_reduction=False, latency_s=2e-6))
    rate = scale_up_bytes_per_s(cluster, constants, 8)
    found = float(all_reduce_s(size, group(array(8), 1.0, cluster), cluster, constants, pieces=2.0))
    assert found == pytest.approx(2 * 7 / 8 * size / rate + 2 * (2 * 7 * 2e-6 + 3e-5), rel=1e-12)
