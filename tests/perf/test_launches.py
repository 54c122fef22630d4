"""What the host starts for a layer: operators of PyTorch, and kernels that native code launches expert by expert."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draws import examples
from meshwright.api import make_case
from meshwright.catalog import cluster_for
from meshwright.catalog import implementation as implementation_named
from meshwright.domain.launch import Launch
from meshwright.domain.layout import Layout
from meshwright.domain.training import Lora
from meshwright.estimate.evaluate import evaluate
from meshwright.perf.elementwise import launch_floor_s, memory_bound_s
from meshwright.perf.launches import expert_kernels, kernels, starts
from meshwright.perf.operators import work_shape
from meshwright.perf.pieces import graph_copy_s

RECIPES = ("bf16", "fp8-mx", "fp8-blockwise", "fp8-cs", "fp8-delayed", "nvfp4")
MIXTURES = ("qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b")


def case(model="qwen3-30b-a3b", precision="bf16", implementation="megatron-te", **more):
    made = make_case(
        model, cluster_for("b200", num_devices=8), global_batch_sequences=64, sequence_tokens=4096, precision=precision,
        calibration="none", **more,
    )
    return replace(made, implementation=implementation_named(implementation))


def shape_of(degree):
    return work_shape(microbatch_sequences=1, sequence_tokens=4096, expert_parallel=degree)


def host(made, degree=8):
    kind, shape = made.model.kinds[-1], shape_of(degree)
    return starts(kind, made, shape, kernels(kind, made, shape, "ring"))


def counts(launches):
    return float(launches.operators), float(launches.native)


@pytest.mark.parametrize("precision", RECIPES)
def test_an_expert_more_takes_a_hook_of_each_weight_and_quantised_tensors(precision):
    """GroupedLinear of 2.12: two weights an expert, each with a workspace where it is quantised, and an input of each product."""
    made, more = case(precision=precision), 128 / 8
    few, many = host(made, 8), host(made, 4)
    tensors = 0 if precision == "bf16" else 4

    def each(part):
        return (counts(getattr(many, part))[0] - counts(getattr(few, part))[0]) / more

    assert [each(part) for part in ("forward", "backward", "backward_of_inputs")] == [tensors, tensors / 2 + 2, tensors / 2]


@pytest.mark.parametrize("implementation", ["megatron-te-fused", "megatron-te-graphed"])
@pytest.mark.parametrize("precision", ["bf16", "fp8-mx"])
def test_fused_experts_are_one_kernel_a_product_however_many_they_are(precision, implementation):
    """The cuDNN front end's grouped GEMM: FC1 with its gate, FC2; backward a gradient of inputs and one of weights of each."""
    made = case(precision=precision, implementation=implementation)
    kind, few, many = made.model.kinds[-1], shape_of(8), shape_of(4)
    assert [float(each) for each in expert_kernels(kind, made, few)] == [2.0, 4.0]
    assert [float(each) for each in expert_kernels(kind, made, many)] == [2.0, 4.0]
    hooks = 0 if made.implementation.cuda_graphs else 2 * 128 / 8
    assert counts(host(made, 4).forward) == counts(host(made, 8).forward)
    assert counts(host(made, 4).backward)[0] - counts(host(made, 8).backward)[0] == hooks


@examples(40)
@given(st.sampled_from(RECIPES), st.sampled_from((1, 2, 4, 8, 16)), st.sampled_from(MIXTURES))
def test_native_code_launches_the_experts_kernels_and_no_other(precision, degree, model):
    made = case(model, precision)
    kind, shape = made.model.kinds[-1], shape_of(degree)
    found, native = host(made, degree), expert_kernels(kind, made, shape)
    assert [counts(each)[1] for each in (found.forward, found.backward)] == [float(each) for each in native]
    assert counts(found.backward_of_inputs)[1] == float(native[1]) - 2 * made.training.precision.expert_product_kernels * (
        kind.experts.num_experts / degree
    )
    assert min(min(counts(each)) for each in (found.forward, found.backward, found.backward_of_inputs)) >= 0.0


@pytest.mark.parametrize(("model", "implementation"), [
    ("qwen3-8b", "megatron-te"), ("qwen3-30b-a3b", "megatron-te-graphed"), ("qwen3-30b-a3b", "jax"),
    ("qwen3-30b-a3b", "torchtitan"),
])
def test_what_has_no_expert_of_its_own_or_no_host_launches_its_kernels_alone(model, implementation):
    made = case(model, implementation=implementation)
    kind = made.model.kinds[-1]
    found = host(made)
    assert [counts(each) for each in (found.forward, found.backward)] == [
        (float(each), 0.0) for each in kernels(kind, made, shape_of(8), "ring")
    ]


def test_frozen_experts_have_no_hooks():
    tuned = case(task="lora", lora=Lora(targets=("query",)))
    found = host(tuned)
    assert counts(found.backward) == counts(found.backward_of_inputs)


@examples(30)
@given(st.floats(0.0, 300.0), st.floats(0.0, 300.0), st.floats(0.0, 2e-3), st.booleans())
def test_native_launches_are_shorter_and_in_a_graph_all_are_alike(count, native, device_s, graphs):
    constants = case().calibration.constants
    found, plain, joined = (
        float(launch_floor_s(device_s, a, constants, native=b, graphs=graphs))
        for a, b in ((count, native), (count, 0.0), (count + native, 0.0))
    )
    assert plain <= found <= joined
    assert not graphs or found == pytest.approx(joined)


@examples(20)
@given(st.sampled_from(("qwen3-8b", "qwen3-30b-a3b")), st.sampled_from((1, 2, 4)))
def test_graphs_of_parts_copy_what_they_are_given(model, tensor):
    """A read and a write of two bytes each way, of the hidden states of the shard; the step as one graph hands nothing over."""
    made = case(model)
    shape = work_shape(microbatch_sequences=1, sequence_tokens=4096, tensor_parallel=tensor, sequence_parallel=True)
    parts = replace(made, launch=Launch(graphs="partial"))
    copied = 4.0 * 4096 / tensor * made.model.hidden
    known = memory_bound_s(copied, made.cluster.device, made.calibration.constants, kind="copy")
    assert float(graph_copy_s(parts, shape)) == pytest.approx(float(known))
    assert float(graph_copy_s(made, shape)) == float(graph_copy_s(replace(made, launch=Launch(graphs="step")), shape)) == 0.0


def test_nobody_schedules_micro_batches_of_a_step_that_is_one_graph():
    layout = Layout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2, num_microbatches=32)
    eager = replace(case("qwen3-8b"), launch=Launch())
    graphed = replace(eager, implementation=replace(eager.implementation, cuda_graphs=True))
    slow = {"microbatch_host_s": 1e-2}
    for made, longer in ((eager, 32 * 1e-2), (graphed, 0.0)):
        constants = made.calibration.constants
        slower, quick = (
            replace(made, calibration=replace(made.calibration, constants=replace(constants, **each)))
            for each in (slow, {"microbatch_host_s": 0.0})
        )
        change = float(evaluate(slower, layout).time.step_s) - float(evaluate(quick, layout).time.step_s)
        assert change == pytest.approx(longer, rel=0.1)
