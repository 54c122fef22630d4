"""Packed micro-batches train what samples one at a time train: same loss, same gradients, with real attention."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from meshwright.catalog import load_model, shrink  # noqa: E402
from meshwright.engine.data import PackedBatchSampler, PackedStream, collate_packed, context_part, packed_loss  # noqa: E402
from meshwright.engine.decoder import Decoder  # noqa: E402
from meshwright.errors import InputError  # noqa: E402
from meshwright.packing import Cost, figures  # noqa: E402

LENGTHS = [3, 17, 9, 30, 5, 12, 8, 26, 4, 11, 2, 19]
VOCABULARY, LIMIT = 97, 48


@pytest.fixture(scope="module")
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def model(double):
    """Llama's block at a small width, two layers, FP64."""
    from dataclasses import replace

    torch.manual_seed(0)
    small = shrink(load_model("llama3-8b"), 2)
    kind = small.kinds[0]
    attention = replace(kind.attention, num_heads=4, num_key_value_heads=2, head_dim=8)
    narrow = replace(kind, attention=attention, feed_forward=replace(kind.feed_forward, width=48))
    return Decoder(replace(small, hidden=32, vocabulary=VOCABULARY, kinds=(narrow,), pattern=(0, 0)))


@pytest.fixture(scope="module")
def samples():
    generator = torch.Generator().manual_seed(3)
    tokens = [torch.randint(0, VOCABULARY, (length,), generator=generator) for length in LENGTHS]
    masks = [torch.rand(length, generator=generator) < 0.7 for length in LENGTHS]
    return [{"tokens": each, "loss_mask": mask} for each, mask in zip(tokens, masks, strict=True)]


def one_at_a_time(model, samples, loss):
    """The loss and the gradients of a step by its definition: no packing, no padding, nothing of the code under test."""
    model.zero_grad()
    counted = sum(int(each["loss_mask"][1:].sum()) for each in samples)
    total = 0.0
    for each in samples:
        logits = model(each["tokens"][None])[0]
        picked = torch.log_softmax(logits[:-1], -1).gather(1, each["tokens"][1:, None])[:, 0]
        own = each["loss_mask"][1:]
        part = -(picked * own).sum() / (counted if loss == "token" else len(samples) * max(1, int(own.sum())))
        part.backward()
        total += float(part.detach())
    return total, [each.grad.clone() for each in model.parameters()]


@pytest.mark.parametrize("loss", ["token", "sample"])
@pytest.mark.parametrize(("ranks", "align", "padded"), [(1, 1, False), (2, 4, True)])
def test_packed_is_one_at_a_time(model, samples, loss, ranks, align, padded):
    expected, gradients = one_at_a_time(model, samples, loss)
    batches = []
    for rank in range(ranks):
        sampler = PackedBatchSampler(
            LENGTHS, LIMIT, global_batch=len(LENGTHS), rank=rank, data_parallel=ranks, align=align,
            cost=Cost(token_s=50.0, square_s=1.0),
        )
        batches += [
            collate_packed([samples[item] for item in each], align=align, pad_to=LIMIT if padded else None, loss=loss)
            for each in sampler
        ]
    assert len(batches) % ranks == 0 and all(each["tokens"].shape[1] <= LIMIT for each in batches)
    denominator = sum(float(each["loss_mask"].sum()) for each in batches) if loss == "token" else len(samples)
    model.zero_grad()
    total = 0.0
    for batch in batches:
        part = packed_loss(model(batch["tokens"], batch["documents"]), batch, denominator)
        part.backward()
        total += float(part.detach())
    assert total == pytest.approx(expected, rel=1e-12)
    worst = max(
        float((mine.grad - theirs).abs().max() / theirs.abs().max())
        for mine, theirs in zip(model.parameters(), gradients, strict=True)
    )
    assert worst < 1e-9, worst


def test_a_sample_does_not_see_another(model, samples):
    batch = collate_packed(samples[:3])
    logits = model(batch["tokens"], batch["documents"])
    changed = batch["tokens"].clone()
    changed[0, :3] = (changed[0, :3] + 1) % VOCABULARY
    again = model(changed, batch["documents"])
    assert torch.equal(logits[:, 3:], again[:, 3:]) and not torch.allclose(logits[:, :3], again[:, :3])
    assert not torch.allclose(logits[:, 3:], model(changed)[:, 3:]), "without documents it would"


def test_a_micro_batch_by_hand(double):
    batch = collate_packed([[5, 6, 7], {"tokens": [8, 9], "loss_mask": [1, 0]}], align=2, pad_to=8, pad_token=1, loss="sample")
    by_hand = {
        "tokens": [[5, 6, 7, 1, 8, 9, 1, 1]], "labels": [[6, 7, -100, -100, -100, -100, -100, -100]],
        "position_ids": [[0, 1, 2, 3, 0, 1, 0, 1]], "documents": [[0, 0, 0, 0, 1, 1, 2, 2]],
        "loss_mask": [[0.5, 0.5, 0, 0, 0, 0, 0, 0]], "cu_seqlens": [0, 4, 6, 8], "max_seqlen": 4,
    }
    assert {name: each.tolist() for name, each in batch.items()} == by_hand
    assert batch["cu_seqlens"].dtype == torch.int32


@pytest.mark.parametrize(
    ("samples", "asked", "words"),
    [
        ([], {}, "no samples"), ([[]], {}, "sample 0: a list of at least one token"),
        ([{"x": [1]}], {}, "sample 0: a list of at least one token"), ([5], {}, "sample 0: a list of at least one token"),
        ([[1], [1.5, 2]], {}, "sample 1: its tokens are no list of whole"),
        (["ab"], {}, "sample 0: its tokens are no list of whole"),
        ([[1, 2, 3]], {"pad_to": 2}, "3 tokens are more than 2"),
        ([{"tokens": [1, 2], "loss_mask": [1]}], {}, "sample 0: a mask of 1 for 2 tokens"),
    ],
)
def test_what_makes_no_micro_batch(samples, asked, words):
    with pytest.raises(InputError) as caught:
        collate_packed(samples, **asked)
    assert words in str(caught.value)


def test_ranks_of_context_parallelism_share_every_sample(double):
    batch = collate_packed([list(range(1, 8)), list(range(11, 16))], align=4)
    parts = [context_part(batch, 2, rank) for rank in range(2)]
    assert [each["tokens"].tolist() for each in parts] == [[[1, 2, 7, 0, 11, 12, 0, 0]], [[3, 4, 5, 6, 13, 14, 15, 0]]]
    assert sum(float(each["loss_mask"].sum()) for each in parts) == float(batch["loss_mask"].sum())
    assert all(torch.equal(each["cu_seqlens"], batch["cu_seqlens"]) for each in parts)


def drawn(count=300):
    rng = np.random.default_rng(8)
    return np.minimum(np.exp(rng.normal(4.5, 0.8, count)).astype(int) + 1, 512)


def samplers(ranks=4, **asked):
    return [PackedBatchSampler(drawn(), 512, global_batch=64, rank=rank, data_parallel=ranks, **asked) for rank in range(ranks)]


def test_ranks_agree_without_asking_each_other():
    every = samplers()
    assert every[0].steps_per_epoch == 4 and len({len(each) for each in every}) == 1
    counts = [[each.microbatches_of(step) for step in range(4)] for each in every]
    assert all(each == counts[0] for each in counts) and sum(counts[0]) == len(every[0])
    rows = [list(each) for each in every]
    seen = sorted(item for row in rows for each in row for item in each)
    assert len(seen) == 256 == len(set(seen))
    assert all(drawn()[each].sum() <= 512 for row in rows for each in row)
    first = [row[: counts[0][0]] for row in rows]
    assert sorted(item for row in first for each in row for item in each) == sorted(samplers()[0].samples_of(0).tolist())
    assert figures(first, drawn(), 512).imbalance_ratio < 1.02


def test_epochs_differ_and_a_seed_repeats_them():
    sampler, again = samplers()[0], samplers()[0]
    first, second = list(sampler), list(sampler)
    assert first != second and (first, second) == (list(again), list(again))
    assert list(samplers(seed=1)[0]) != first
    other = samplers()[0]
    other.set_epoch(1)
    assert list(other) == second
    assert sorted(np.concatenate([sampler.samples_of(step) for step in range(4)]).tolist()) != list(range(256))
    in_order = samplers(shuffle=False)[0]
    assert in_order.samples_of(1).tolist() == list(range(64, 128))


@pytest.mark.parametrize("stop", [1, 7, 13])
def test_a_resumed_epoch_goes_on_where_it_stood(stop):
    whole = list(samplers()[1])
    sampler = samplers()[1]
    walk = iter(sampler)
    before = [next(walk) for _ in range(stop)]
    resumed = samplers(seed=99)[1]
    resumed.load_state_dict(sampler.state_dict())
    resumed.set_epoch(0)
    assert [*before, *resumed] == whole
    behind = samplers()[1]
    behind.load_state_dict(sampler.state_dict(steps=2))
    assert [*behind] == whole[sum(samplers()[1].microbatches_of(step) for step in range(2)) :]


def test_the_last_samples_are_left_out_or_a_smaller_step():
    kept = PackedBatchSampler(drawn(), 512, global_batch=64, drop_last=False)
    assert kept.steps_per_epoch == 5 and len({item for each in kept for item in each}) == 300


def test_a_state_that_no_sampler_has_said_changes_nothing():
    sampler = PackedBatchSampler(drawn(), 512, global_batch=64)
    next(iter(sampler))
    before = sampler.state_dict()
    for state in (None, {}, before | {"seed": "x"}, before | {"step": -1}, before | {"step": 1.5}, before | {"step": 99}):
        with pytest.raises(InputError):
            sampler.load_state_dict(state)
        assert sampler.state_dict() == before
    for lengths in ([5.7, 5.2], [float("nan")] * 2):
        with pytest.raises(InputError, match="whole numbers"):
            PackedBatchSampler(lengths, 512, global_batch=1)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"rank": 2, "data_parallel": 2}, "rank 2 of 2 ranks"), ({"global_batch": 500}, "a step of 500 samples"),
        ({"global_batch": 1, "data_parallel": 2}, "a step of 1 samples"), ({"max_tokens": 100}, "longer than 100 tokens"),
    ],
)
def test_what_no_sampler_can_do(asked, words):
    with pytest.raises(InputError) as caught:
        PackedBatchSampler(drawn(), **{"max_tokens": 512, "global_batch": 64} | asked)
    assert words in str(caught.value)
    with pytest.raises(InputError, match="the epoch has 4 steps"):
        samplers()[0].load_state_dict({"epoch": 0, "step": 9, "microbatch": 0, "seed": 0})


def test_it_is_a_batch_sampler_of_a_data_loader(double):
    tokens = [torch.arange(length) for length in drawn()]
    sampler = samplers()[0]
    loader = torch.utils.data.DataLoader(tokens, batch_sampler=sampler, collate_fn=collate_packed)
    many = len(sampler)
    batches = list(loader)
    assert len(batches) == many and all(each["tokens"].shape[1] <= 512 for each in batches)


class Counted:
    """A stream that knows how many samples it has given."""

    def __init__(self, lengths):
        self.given, self.lengths = 0, lengths

    def __iter__(self):
        for length in self.lengths:
            self.given += 1
            yield [0] * int(length)


def test_a_stream_holds_one_window_and_ranks_have_as_many_micro_batches():
    """Two ranks in turn: the agreement of one waits for the other's number, which is known here from a run of each alone."""
    long, short = Counted(drawn(96)), Counted(drawn(96) // 3 + 1)
    alone = [[len(each) for each in windows(source, 16)] for source in (long.lengths, short.lengths)]
    most = [max(pair) for pair in zip(*alone, strict=True)]
    for source in (long, short):
        replies = iter([reply for count in most for reply in (0, count)] + [1])
        stream = PackedStream(source, 512, window=16, agree=lambda _, replies=replies: next(replies))
        found = []
        for place, each in enumerate(stream):
            found.append(each)
            assert source.given <= 16 * (1 + sum(place >= sum(most[: index + 1]) for index in range(len(most))))
        assert len(found) == sum(most)
        assert sorted(len(sample) for each in found for sample in each) == sorted(map(int, source.lengths))
        assert all(sum(map(len, each)) <= 512 for each in found)


def windows(lengths, size):
    """Micro-batches of each window by itself."""
    for start in range(0, len(lengths), size):
        yield list(PackedStream(Counted(lengths[start : start + size]), 512, window=size, agree=lambda number: number))


def test_the_end_of_one_stream_ends_all():
    assert list(PackedStream(Counted([5] * 9), 10, window=4)) == [[[0] * 5] * 2] * 4, "the ninth is no whole window"
    replies = iter([0, 2, 1])
    assert len(list(PackedStream(Counted([5] * 40), 10, window=4, agree=lambda _: next(replies)))) == 2
    with pytest.raises(InputError, match="a window of 0 samples"):
        PackedStream([], 10, window=0)


def streamed(rank_lengths):
    """On a rank: micro-batches of its own stream, in samples and tokens; the number of each window is agreed over gloo."""
    from torch import distributed

    assert distributed.get_backend() == "gloo"
    own = rank_lengths[distributed.get_rank()]
    return [[len(sample) for sample in each] for each in PackedStream([[0] * length for length in own], 512, window=16)]


@pytest.mark.parametrize("ranks", [2, 4])
def test_processes_agree_on_their_micro_batches(ranks):
    """Real processes over gloo: streams of other lengths, of which one ends first; alone their numbers would differ."""
    from meshwright.engine.launch import Task, launch

    lengths = [[int(each) for each in drawn(96)[:: 1 + rank % 2] // (1 + rank) + 1] for rank in range(ranks)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = launch(Task(target="test_packed_data:streamed", payload=lengths), ranks, limit_s=120.0)
    assert len({len(each) for each in found}) == 1, "as many micro-batches on every rank"
    whole = min(len(each) // 16 for each in lengths) * 16
    assert whole < max(map(len, lengths))
    for mine, own in zip(found, lengths, strict=True):
        assert sorted(length for each in mine for length in each) == sorted(own[:whole]), "no window of one rank alone"
        assert all(sum(each) <= 512 for each in mine)
    alone = [sum(len(window) for window in windows(own[:whole], 16)) for own in lengths]
    assert len(set(alone)) > 1 and len(found[0]) >= max(alone)
