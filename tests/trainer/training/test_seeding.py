"""Random numbers depend only on the seed and the purpose."""

import pytest
import torch

from trainer.training.plan import Purpose, draw_augmentation, generator_of, plan_epoch, seed_of


@pytest.mark.parametrize(("num_samples", "batch_size"), [(10, 3), (10, 10), (7, 100), (101, 10)])
def test_an_epoch_has_every_sample_once_in_batches_of_nearly_equal_size(
    num_samples: int, batch_size: int
) -> None:
    plan = plan_epoch(num_samples, batch_size, seed=0, epoch=0)

    sizes = [len(batch) for batch in plan]
    assert torch.cat(plan).sort().values.tolist() == list(range(num_samples))
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size
    assert len(plan) == -(-num_samples // batch_size)


def test_the_order_follows_the_seed_and_the_epoch() -> None:
    first, again, next_epoch, next_seed = (
        torch.cat(plan_epoch(50, 8, seed, epoch))
        for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, next_epoch)
    assert not torch.equal(first, next_seed)
    assert not torch.equal(next_epoch, next_seed)


def test_the_order_does_not_depend_on_the_size_of_batches() -> None:
    small, large = (torch.cat(plan_epoch(50, size, seed=0, epoch=3)) for size in (4, 32))

    assert torch.equal(small, large)


def test_groups_stay_together_in_batches_of_nearly_as_many_groups() -> None:
    groups = torch.tensor([7, 3, 7, 5, 3, 9, 9, 9, 1, 7])

    plan = plan_epoch(10, 2, seed=0, epoch=0, groups=groups)

    assert torch.cat(plan).sort().values.tolist() == list(range(10))
    of_batches = [set(groups[batch].tolist()) for batch in plan]
    assert sorted(map(len, of_batches)) == [1, 2, 2]
    assert set.union(*of_batches) == {1, 3, 5, 7, 9}
    assert sum(map(len, of_batches)) == 5, "no group is in two batches"
    others = plan_epoch(10, 2, seed=0, epoch=1, groups=groups)
    assert [each.tolist() for each in others] != [each.tolist() for each in plan]


def test_augmentation_draws_new_numbers_for_each_sample_in_each_epoch() -> None:
    first, again, next_epoch, next_seed = (
        draw_augmentation(50, seed, epoch) for seed, epoch in ((0, 0), (0, 0), (0, 1), (1, 0))
    )

    assert first.shape == (50, 5)
    assert ((first >= 0) & (first < 1)).all()
    assert len(first.unique()) > 200
    assert torch.equal(first, again)
    assert not torch.equal(first, next_epoch)
    assert not torch.equal(first, next_seed)


def test_purposes_do_not_share_a_stream() -> None:
    seeds = [seed_of(seed, purpose, 1) for seed in range(5) for purpose in Purpose]

    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_the_global_generator_is_not_used() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()

    plan_epoch(10, 3, seed=5, epoch=0)
    draw_augmentation(10, seed=5, epoch=0)
    generator_of(5, Purpose.ORDER)

    assert torch.equal(torch.get_rng_state(), before)
