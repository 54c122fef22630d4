"""A step of reinforcement learning: lengths, the engine followed sequence by sequence, and the phases that make up the step."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.catalog.engines import engine
from meshwright.domain.episode import Episode, Responses
from meshwright.domain.label import parse_layout
from meshwright.estimate import estimate
from meshwright.estimate.episode import engines, episode_estimate, generation, passes_s, room_tokens
from meshwright.perf.decoding import decode_s, prefill_s

ONE = engine()


@examples(60)
@given(longest=st.integers(2, 10**6), share=st.floats(-12.0, -0.01).map(np.exp))
def test_lengths_have_the_mean_and_none_is_longer_than_the_longest(longest, share):
    law = Responses(mean_tokens=share * longest, longest_tokens=longest)
    drawn = np.array([law.quantile_tokens((index + 0.5) / 2000) for index in range(2000)])
    assert drawn.mean() == pytest.approx(share * longest, rel=5e-3)  # responses that are a hundred-thousandth of the longest, too
    assert np.all(np.diff(drawn) >= 0.0)
    assert 0.0 <= drawn[0] <= drawn[-1] <= longest * (1 + 1e-12)


def case(model="llama3-8b", devices=16):
    cluster = cluster_for("h100-sxm", num_devices=devices)
    return make_case(model, cluster, global_batch_sequences=64, sequence_tokens=4096, calibration="none")


def asked(prompts=64, responses=8, mean=500.0, longest=2000, **more):
    law = Responses(mean_tokens=mean, longest_tokens=longest)
    return Episode(
        prompts=prompts, responses=responses, prompt_tokens=256, response=law, updates=1, old=True, reference=True, **more
    )


def by_hand_s(made, episode, own, lengths, room):
    """Token by token: who fits in turn comes in, who is done goes."""
    waiting, running, spent = list(lengths), [], 0.0
    while waiting or running:
        while waiting and len(running) < own.running and (
            not running or sum(length for length, _ in running) + waiting[0] <= room
        ):
            length = waiting.pop(0)
            running.append((length, length - episode.prompt_tokens))
        context = np.mean([length - left for length, left in running]) + 0.5
        spent += float(decode_s(made, own, running=len(running), context_tokens=context))
        running = [(length, left - 1) for length, left in running if left > 1]
    return spent


@pytest.mark.parametrize(("tensor", "most"), [(1, 1024), (2, 1024), (8, 5), (4, 3)])
def test_strides_take_as_long_as_token_by_token(tensor, most):
    made, episode = case(), asked(mean=60.0, longest=200)
    own = replace(ONE, tensor_parallel=tensor, running=most)
    found = generation(made, episode, own)
    order = np.argsort((np.arange(found.samples) * 0.6180339887498949) % 1.0, kind="stable")
    lengths = np.array(episode.lengths(found.samples))[order]
    prefill = float(prefill_s(made, own, episode.prompts * episode.prompt_tokens * tensor / 16))
    assert found.seconds == pytest.approx(prefill + by_hand_s(made, episode, own, lengths, found.room_tokens), rel=0.02)
    assert found.most_running == min(most, found.samples)


@examples(25)
@given(prompts=st.integers(1, 2000), mean=st.integers(16, 2000), more=st.integers(1, 8), tensor=st.sampled_from([1, 2, 4, 8]))
def test_generation_is_no_shorter_than_its_longest_response_and_than_its_tokens(prompts, mean, more, tensor):
    made, own = case(), replace(ONE, tensor_parallel=tensor)
    episode = asked(prompts=prompts, responses=1, mean=float(mean), longest=mean * more)
    assume(room_tokens(made, own, 256 + mean * more) >= 256 + mean * more)
    found = generation(made, episode, own)
    lengths = np.array(episode.lengths(min(found.samples, 1024))) - 256.0
    least = float(decode_s(made, own, running=1.0, context_tokens=256.0))
    assert found.seconds >= lengths.max() * least
    crowd = float(decode_s(made, own, running=float(found.most_running), context_tokens=256.0))
    assert found.seconds >= found.samples * lengths.mean() * crowd / found.most_running * (1 - 1e-9)
    assert 0.0 <= found.tail_s <= found.seconds
    assert found.most_running <= found.samples


def test_an_engine_with_less_memory_runs_fewer_at_once_and_is_no_faster():
    made, episode = case(), asked(prompts=512, mean=1000.0, longest=4000)
    shares = [generation(made, episode, replace(ONE, memory_ratio=share)) for share in (0.9, 0.5, 0.35)]
    running, seconds = [each.most_running for each in shares], [each.seconds for each in shares]
    assert running == sorted(running, reverse=True)
    assert running[0] > running[-1]
    assert seconds == sorted(seconds)


def test_weights_that_no_device_holds_need_more_devices_to_a_copy():
    made = case("llama3-70b")
    assert [each.tensor_parallel for each in engines(made, ONE, asked())] == [4, 8]
    large = case("llama3.1-405b")
    assert engines(large, ONE, asked()) == ()
    assert episode_estimate(large, trained(large, "tp8 pp2 dp1 mb1"), asked(), ONE) is None
    assert [each.tensor_parallel for each in engines(case("llama3.1-405b", devices=64), ONE, asked())] == [32, 64]


def test_a_copy_over_nodes_waits_for_the_network_in_every_layer():
    made = case("llama3-70b")
    inside, across = (replace(ONE, tensor_parallel=size) for size in (8, 16))
    both = [float(decode_s(made, each, running=1.0, context_tokens=0.0)) for each in (inside, across)]
    assert both[1] > both[0]
    free = replace(across, reduce_across_s=0.0)
    waits = both[1] - float(decode_s(made, free, running=1.0, context_tokens=0.0))
    assert waits == pytest.approx(2 * 80 * ONE.reduce_across_s)


def trained(made, label):
    batch = made.batch.global_batch_sequences
    layout = parse_layout(
        label, num_devices=made.cluster.num_devices, global_batch_sequences=batch, devices_per_node=8, model=made.model
    )
    return estimate(made, layout)


def test_the_phases_are_the_step():
    made = case()
    own = trained(made, "tp2 pp2 dp4 mb1 sp zero1")
    found = episode_estimate(made, own, replace(asked(), updates=4), ONE)
    phases = {phase.name: phase for phase in found.phases}
    assert found.seconds == pytest.approx(sum(phase.seconds for phase in found.phases))
    assert phases["training"].seconds == pytest.approx(4 * own.step_s)
    assert phases["old log-probabilities"].seconds == phases["reference"].seconds
    assert 0.2 < phases["reference"].seconds / phases["training"].seconds < 0.4
    assert found.generation.seconds == min(each.seconds for each in (found.generation, *found.others))
    twice = {each.name: each.seconds for each in episode_estimate(made, own, replace(asked(), updates=4, epochs=2), ONE).phases}
    assert twice["training"] == pytest.approx(2 * phases["training"].seconds)
    assert twice["reference"] == phases["reference"].seconds
    without = episode_estimate(made, own, replace(asked(), updates=4, old=False, reference=False), ONE)
    assert {phase.name for phase in without.phases} == {"generation", "training", "weights to the engine"}


def test_a_pass_fills_its_pipeline_once():
    own = trained(case(), "tp1 pp4 vp2 dp4 mb1 zero1")
    slowest = max(stage.forward_s for stage in own.stages)
    assert passes_s(own.stages, 16, 2) == pytest.approx((16 + 3 / 2) * slowest)


def test_while_weights_are_handed_over_the_engine_has_no_keys_and_values():
    made = case()
    own = trained(made, "tp2 dp8 mb1 sp zero1")
    found = episode_estimate(made, own, asked(), replace(ONE, memory_ratio=0.9))
    assert found.waits
    phases, held = {phase.name: phase.memory_bytes for phase in found.phases}, own.stages[0].memory
    assert phases["weights to the engine"] == found.generation.weights_bytes + held.parameters + held.overhead
    assert phases["weights to the engine"] < 0.9 * made.cluster.device.memory_bytes < phases["generation"]


def test_a_phase_that_needs_more_than_the_device_is_named():
    made = case()
    own = trained(made, "tp2 dp8 mb1 sp zero1")
    fits, over = (episode_estimate(made, own, asked(), replace(ONE, memory_ratio=share)).over for share in (0.9, 0.99))
    assert fits == ()
    assert [phase.name for phase in over] == ["generation"]


def test_what_the_trainer_holds_leaves_the_device_where_it_does_not_fit_beside_the_engine():
    made = case()
    own = trained(made, "tp2 dp8 mb1 sp zero1")
    small, large = (episode_estimate(made, own, asked(), replace(ONE, memory_ratio=share)) for share in (0.35, 0.9))
    assert not small.waits
    assert large.waits
    held = own.stages[0].memory
    way = (held.parameters + held.gradients + held.optimizer) / made.cluster.host_link_bytes_per_s
    assert {phase.name: phase.seconds for phase in large.phases}["off the device and back"] == pytest.approx(2 * way)


@pytest.mark.parametrize("running", [4, 256])
def test_no_more_run_at_once_than_may_however_many_samples_there_are(running):
    """And more samples take longer, for ever in proportion: of more than are followed a part stands for all."""
    one = replace(ONE, tensor_parallel=8, running=running)
    found = [generation(case(), asked(prompts=prompts, responses=1, mean=4.0, longest=8), one)
             for prompts in (1_000, 10_000, 1_000_000, 100_000_000)]
    assert all(each.most_running <= min(running, each.room_tokens) for each in found)
    seconds = [each.seconds for each in found]
    assert seconds == sorted(seconds)
    assert seconds[3] / seconds[2] == pytest.approx(100.0, rel=0.02)
    assert seconds[2] / seconds[1] == pytest.approx(100.0, rel=0.15)
