"""Batches in an order by difficulty: which samples, resumed, and shared among processes."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import trainer
from difficulty_service.base.errors import ConfigError, TrainingError, UnmatchedScores
from tests.factories import write_score_file
from tests.small_runs import RunRecorder, run
from trainer.config import Recipe
from trainer.training.plan import plan_epoch

MakeRecipe = Callable[..., Recipe]

SAMPLES, BATCH, EPOCHS = 50, 8, 6
ORDERS = ["random", "easy_first", "hard_first", "mixed"]


@pytest.fixture
def difficulty() -> Tensor:
    return torch.randn(SAMPLES, generator=torch.Generator().manual_seed(0))


def sampler_of(difficulty: Tensor, order: Any, **options: Any) -> trainer.DifficultySampler:  # noqa: ANN401
    return trainer.DifficultySampler(difficulty, BATCH, order, epochs=EPOCHS, **options)


@pytest.mark.parametrize("order", ["easy_first", "hard_first"])
def test_an_epoch_draws_evenly_from_a_growing_part_of_the_samples(
    difficulty: Tensor, order: str
) -> None:
    sampler = sampler_of(difficulty, order, start=0.3, until=0.5)
    ranked = sorted(range(SAMPLES), key=difficulty.tolist().__getitem__)
    if order == "hard_first":
        ranked.reverse()

    epochs = [list(sampler) for _ in range(EPOCHS)]

    # A part of 0.3 grows by (1 - 0.3) / 3 an epoch, until half of six epochs.
    for batches, part in zip(epochs, [15, 27, 39, 50, 50, 50], strict=True):
        counts = Counter(sample for batch in batches for sample in batch)
        assert set(counts) == set(ranked[:part])
        assert counts.total() == SAMPLES
        assert max(counts.values()) - min(counts.values()) <= 1
    assert len({len(batches) for batches in epochs}) == 1
    assert epochs[3] != epochs[4]


@pytest.mark.parametrize("samples", [48, SAMPLES, 51, 7])
def test_a_mixed_batch_has_one_sample_of_each_stratum(samples: int) -> None:
    difficulty = torch.randn(samples, generator=torch.Generator().manual_seed(1))
    ranked = difficulty.argsort().tolist()
    sampler = sampler_of(difficulty, "mixed")
    stratum = {sample: rank // len(sampler) for rank, sample in enumerate(ranked)}

    batches, others = list(sampler), list(sampler)

    assert sorted(sample for batch in batches for sample in batch) == list(range(samples))
    for batch in batches:
        strata = sorted(stratum[sample] for sample in batch)
        assert strata[:-1] == list(range(len(strata) - 1))  # only the last stratum may be short
    assert max(map(len, batches)) - min(map(len, batches)) <= 1
    assert batches != others or samples < BATCH


def test_a_mixed_batch_is_in_no_order_of_difficulty(difficulty: Tensor) -> None:
    batches = list(sampler_of(difficulty, "mixed"))

    assert any(difficulty[batch].tolist() != sorted(difficulty[batch]) for batch in batches)


def test_a_random_order_is_that_of_the_trainer(difficulty: Tensor) -> None:
    sampler = sampler_of(difficulty, "random", seed=3)

    epochs = [list(sampler) for _ in range(2)]

    assert epochs == [
        [batch.tolist() for batch in plan_epoch(SAMPLES, BATCH, 3, epoch)] for epoch in range(2)
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("done", [0, 3, 6])
def test_a_resumed_sampler_goes_on_in_the_same_order(
    difficulty: Tensor, order: str, done: int
) -> None:
    whole = sampler_of(difficulty, order, seed=5)
    expected = [list(whole) for _ in range(3)]
    stopped = sampler_of(difficulty, order, seed=5)
    list(stopped)
    iterator = iter(stopped)
    for _ in range(done):
        next(iterator)

    resumed = sampler_of(difficulty, order)
    resumed.load_state_dict(stopped.state_dict())

    assert list(resumed) == expected[1][done:]
    assert list(resumed) == expected[2]


def test_a_checkpoint_may_count_fewer_batches_than_were_drawn_ahead(difficulty: Tensor) -> None:
    sampler = sampler_of(difficulty, "easy_first")
    expected = list(sampler_of(difficulty, "easy_first"))
    drawn = iter(sampler)
    for _ in range(5):
        next(drawn)

    resumed = sampler_of(difficulty, "easy_first")
    resumed.load_state_dict(sampler.state_dict(batches=2))

    assert list(resumed) == expected[2:]


def test_a_checkpoint_of_other_samples_is_refused(difficulty: Tensor) -> None:
    state = sampler_of(difficulty, "mixed").state_dict()

    with pytest.raises(ValueError, match="the checkpoint has samples 50, and this sampler 49"):
        sampler_of(difficulty[1:], "mixed").load_state_dict(state)


@pytest.mark.parametrize("order", ORDERS)
def test_processes_share_every_batch(difficulty: Tensor, order: str) -> None:
    whole = sampler_of(difficulty, order)
    parts = [sampler_of(difficulty, order, process=(rank, 3)) for rank in range(3)]

    shares = [list(part) for part in parts]

    for batch, *own in zip(list(whole), *shares, strict=True):
        assert [sample for share in own for sample in share] == batch
        assert max(map(len, own)) - min(map(len, own)) <= 1


def test_a_process_without_a_share_is_an_error(difficulty: Tensor) -> None:
    with pytest.raises(ValueError, match="batches of 7 samples for 9 processes"):
        sampler_of(difficulty, "mixed", process=(0, 9))


def test_an_epoch_may_be_chosen_by_its_number(difficulty: Tensor) -> None:
    sampler, other = sampler_of(difficulty, "mixed"), sampler_of(difficulty, "mixed")
    list(other)
    sampler.set_epoch(1)

    batches = DataLoader(range(SAMPLES), batch_sampler=sampler)  # type: ignore[arg-type]

    assert [batch.tolist() for batch in batches] == list(other)


@pytest.mark.parametrize(
    ("order", "options", "error", "message"),
    [
        ("mixed", {"start": 0.2}, ConfigError, "start=0.2 has no effect with order='mixed'"),
        ("easy_first", {"epochs": None}, ConfigError, "give their number as epochs"),
        ("easy_first", {"until": 0.0}, ConfigError, "until=0.0: Input should be greater than 0"),
        ("easy", {}, ConfigError, "order='easy'"),
        ("mixed", {"difficulty": torch.tensor([0.0, torch.nan])}, ValueError, "must be finite"),
    ],
)
def test_a_sampler_that_makes_no_sense_is_an_error(
    difficulty: Tensor, order: str, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    options = {"difficulty": difficulty, "epochs": EPOCHS} | options

    with pytest.raises(error, match=message):
        trainer.DifficultySampler(batch_size=BATCH, order=order, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("samples", "batch_size", "epochs"), [(0, 8, 6), (50, 0, 6), (50, -8, 6), (50, 8, 0)]
)
def test_batches_that_there_cannot_be_are_refused(
    difficulty: Tensor, samples: int, batch_size: int, epochs: int
) -> None:
    message = f"{samples} samples in batches of {batch_size} for {epochs} epochs"

    with pytest.raises(ValueError, match=message):
        trainer.DifficultySampler(difficulty[:samples], batch_size, "easy_first", epochs=epochs)


def test_difficulty_is_joined_to_the_samples_by_their_ids(tmp_path: Path) -> None:
    path = write_score_file(tmp_path / "scores.parquet", {"a": 1.0, "b": 5.0})

    assert trainer.read_difficulty(path, ["b", "a"]).tolist() == [5.0, 1.0]
    with pytest.raises(UnmatchedScores, match=r"'c'; score the training dataset$"):
        trainer.read_difficulty(path, ["b", "a", "c"])


def test_unreliable_scores_give_no_order(tmp_path: Path) -> None:
    path = write_score_file(tmp_path / "scores.parquet", {"a": 1.0}, reliable=False)

    with pytest.raises(TrainingError, match="marked as unreliable"):
        trainer.read_difficulty(path, ["a"])


def test_a_run_takes_its_samples_in_the_order_of_its_recipe_also_when_resumed(
    probe_recipe: MakeRecipe, locations: dict[str, str], tmp_path: Path
) -> None:
    sampling = {"order": "easy_first", "scores": locations["SCORES"]}
    recipe = probe_recipe(sampling=sampling, training={"batch_size": 24})

    run(recipe, tmp_path / "whole")
    assert not run(recipe, tmp_path / "stopped", RunRecorder(stop_after=4))
    assert run(recipe, tmp_path / "stopped", resume=True)

    whole, stopped = (tmp_path / name / "seed-0" for name in ("whole", "stopped"))
    assert (whole / "model.safetensors").read_bytes() == (
        stopped / "model.safetensors"
    ).read_bytes()
    other = sampling | {"scores": locations["OTHER_SCORES"]}
    of_other_scores = probe_recipe(sampling=other, training={"batch_size": 24})
    with pytest.raises(TrainingError, match=r"belongs to another run: .*difficulty"):
        run(of_other_scores, tmp_path / "stopped", resume=True)
