"""The watermark is the published one, and a reader with the key finds it."""

import torch

from penstock.shard.execution.watermark import Watermark


def test_the_green_list_is_a_part_of_a_seeded_permutation() -> None:
    generator = torch.Generator()
    generator.manual_seed(15485863 * 71)
    permutation = torch.randperm(101, generator=generator)
    assert torch.equal(Watermark(gamma=0.25).green_list(71, 101), permutation[:25])
    assert len(Watermark().green_list(70, 101)) == 50
    assert set(Watermark().green_list(70, 101).tolist()) != set(Watermark().green_list(71, 101).tolist())


def test_the_green_list_depends_on_nothing_else_and_changes_nothing_else() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    expected = Watermark().green_list(71, 1 << 17)
    assert torch.equal(torch.get_rng_state(), state)
    try:
        torch.set_num_threads(threads + 1)
        torch.manual_seed(5)
        assert torch.equal(Watermark().green_list(71, 1 << 17), expected)
    finally:
        torch.set_num_threads(threads)
        torch.set_rng_state(state)


def test_green_tokens_gain_delta_and_others_nothing() -> None:
    watermark = Watermark(gamma=0.5, delta=3.5)
    logits = torch.zeros(64)
    watermark.add_to(logits, previous_token=9)
    assert logits.nonzero()[:, 0].tolist() == sorted(watermark.green_list(9, 64).tolist())
    assert set(logits.tolist()) == {0.0, 3.5}
