"""Batches in an order by difficulty in loops that stop early, look ahead, resume or share."""

from collections.abc import Iterator
from itertools import islice
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import trainer
from tests.two_processes import run_in_two

SAMPLES, BATCH, EPOCHS = 50, 10, 4
STEPS = SAMPLES // BATCH

Batches = list[list[int]]


@pytest.fixture
def difficulty() -> Tensor:
    return torch.randn(SAMPLES, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def sampler(difficulty: Tensor) -> trainer.DifficultySampler:
    return trainer.DifficultySampler(difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4)


@pytest.fixture
def epochs(difficulty: Tensor) -> list[Batches]:
    """The batches of every epoch, of a sampler that each pass exhausts."""
    whole = trainer.DifficultySampler(difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4)
    return [list(whole) for _ in range(EPOCHS)]


def loader_of(sampler: trainer.DifficultySampler, **options: Any) -> DataLoader[int]:  # noqa: ANN401
    return DataLoader(range(SAMPLES), batch_sampler=sampler, **options)  # type: ignore[arg-type]


def drawn(batches: Iterator[Tensor]) -> Batches:
    return [batch.tolist() for batch in batches]


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]
)
@pytest.mark.parametrize("steps", [2, STEPS])
def test_a_pass_that_stops_after_some_batches_is_followed_by_the_next_epoch(
    sampler: trainer.DifficultySampler, epochs: list[Batches], options: dict[str, Any], steps: int
) -> None:
    loader = loader_of(sampler, **options)

    passes = [drawn(islice(iter(loader), steps)) for _ in range(EPOCHS)]

    assert passes == [batches[:steps] for batches in epochs]


def test_a_look_at_the_first_batch_is_a_pass(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    loader = loader_of(sampler)
    next(iter(loader))

    assert drawn(iter(loader)) == epochs[1]
    sampler.set_epoch(0)
    assert drawn(iter(loader)) == epochs[0]


def test_an_iterator_that_nothing_was_drawn_from_is_no_pass(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    iter(sampler)

    assert list(sampler) == epochs[0]


def test_an_older_pass_does_not_move_the_place_of_the_newer_one(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    older, newer = iter(sampler), iter(sampler)
    next(older), next(newer)

    assert list(older) == epochs[0][1:]
    assert sampler.state_dict() | {"epoch": 1, "batch": 1} == sampler.state_dict()


@pytest.mark.parametrize("done", [2, STEPS])
def test_a_checkpoint_beside_workers_is_of_the_epoch_that_they_drew_ahead(
    sampler: trainer.DifficultySampler, difficulty: Tensor, epochs: list[Batches], done: int
) -> None:
    for step, _ in enumerate(loader_of(sampler, num_workers=2, prefetch_factor=4), 1):
        if step == done:
            state = sampler.state_dict(batches=step)

    resumed = trainer.DifficultySampler(difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4)
    resumed.load_state_dict(state)

    rest = epochs[0][done:]
    assert [list(resumed) for _ in range(2)] == [rest or epochs[1], epochs[1 if rest else 2]]


def test_a_checkpoint_after_the_last_batch_goes_on_with_the_next_epoch(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    list(zip(range(STEPS), sampler, strict=False))

    sampler.load_state_dict(sampler.state_dict())

    assert sampler.epoch == 1
    assert list(sampler) == epochs[1]


def test_the_number_of_an_epoch_keeps_the_place_that_was_loaded_in_it(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    state = sampler.state_dict() | {"epoch": 2, "batch": 3}
    sampler.load_state_dict(state)

    for _ in range(2):  # Accelerate says it twice
        sampler.set_epoch(2)
    assert sampler.state_dict() == state

    assert list(sampler) == epochs[2][3:]
    sampler.set_epoch(2)
    assert list(sampler) == epochs[2]


def test_an_iterator_whose_place_was_loaded_has_the_rest_of_its_epoch_even_if_that_is_nothing(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    """As StatefulDataLoader of torchdata loads it."""
    state = sampler.state_dict() | {"batch": STEPS}
    sampler.load_state_dict(state)
    loaded: Any = iter(sampler)
    loaded.load_state_dict(state)

    assert [list(loaded), list(sampler)] == [[], epochs[1]]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}])
@pytest.mark.parametrize("done", [2, STEPS])
def test_a_stateful_data_loader_goes_on_where_its_checkpoint_was_made(
    difficulty: Tensor, epochs: list[Batches], options: dict[str, Any], done: int
) -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")

    def make_loader() -> Any:  # noqa: ANN401 - of torchdata
        sampler = trainer.DifficultySampler(
            difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4
        )
        return torchdata.StatefulDataLoader(range(SAMPLES), batch_sampler=sampler, **options)

    loader, resumed = make_loader(), make_loader()
    drawn(loader)
    taken = drawn(islice(iter(loader), done if done < STEPS else None))  # None: to its end
    resumed.load_state_dict(loader.state_dict())

    rest = epochs[1][len(taken) :]
    later = [rest, epochs[2]] if rest else [epochs[2], epochs[3]]
    assert [drawn(resumed), drawn(resumed)] == later


class Recorder:
    """Remembers the samples of each batch, by the epoch that the loop is in."""

    def __init__(self) -> None:
        self.epochs: dict[int, Batches] = {}

    def saw(self, epoch: int, batch: Tensor) -> None:
        self.epochs.setdefault(epoch, []).append(batch.long().flatten().tolist())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("limit", [1.0, 0.4])
def test_each_epoch_of_lightning_has_the_batches_of_its_number(
    difficulty: Tensor,
    epochs: list[Batches],
    limit: float,
    workers: int,
    tmp_path: Path,
) -> None:
    lightning = pytest.importorskip("lightning")
    seen = Recorder()

    class Model(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def train_dataloader(self) -> DataLoader[int]:
            own = trainer.DifficultySampler(
                difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4
            )
            if workers:  # which draw before Lightning says the epoch
                own.set_epoch(self.current_epoch)
            return loader_of(own, num_workers=workers)

        def training_step(self, batch: Tensor, _: int) -> None:
            seen.saw(self.current_epoch, batch)

        def configure_optimizers(self) -> None:
            return None

    options = {"accelerator": "cpu", "logger": False, "default_root_dir": tmp_path}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    fitting = lightning.Trainer(max_epochs=2, limit_train_batches=limit, **options, **quiet)
    fitting.fit(Model())
    fitting.save_checkpoint(tmp_path / "last.ckpt")
    resumed = lightning.Trainer(max_epochs=4, limit_train_batches=limit, **options, **quiet)
    resumed.fit(Model(), ckpt_path=tmp_path / "last.ckpt")

    steps = int(limit * STEPS)
    assert seen.epochs == {each: batches[:steps] for each, batches in enumerate(epochs)}


@pytest.mark.slow
def test_each_epoch_of_keras_has_the_batches_of_its_number_that_a_callback_gives(
    sampler: trainer.DifficultySampler,
    epochs: list[Batches],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    seen = Recorder()

    class Model(keras.Sequential):  # type: ignore[name-defined, misc]
        def train_step(self, data: tuple[Tensor, Tensor]) -> Any:  # noqa: ANN401
            seen.saw(sampler.epoch, data[1])
            return super().train_step(data)

    model = Model([keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    samples = TensorDataset(torch.zeros(SAMPLES, 1), torch.arange(SAMPLES)[:, None])
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, _: sampler.set_epoch(epoch)
    )
    loader = DataLoader(samples, batch_sampler=sampler)
    model.fit(loader, epochs=EPOCHS, callbacks=[callback], shuffle=False, verbose=0)

    assert seen.epochs == dict(enumerate(epochs))


@pytest.mark.parametrize("prepared", [False, True])
def test_a_trainer_of_hugging_face_takes_all_steps_also_when_resumed(
    difficulty: Tensor,
    epochs: list[Batches],
    prepared: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
) -> None:
    """Stopped after 8 of 20 steps, within the second epoch."""
    transformers = pytest.importorskip("transformers")
    seen = Recorder()

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))

        def forward(self, index: Tensor) -> dict[str, Tensor]:
            seen.saw(0, index)
            return {"loss": self.weight.sum()}

    class Sorted(transformers.Trainer):  # type: ignore[name-defined, misc]
        def get_train_dataloader(self) -> DataLoader[Any]:
            loader = DataLoader(self.train_dataset, batch_sampler=self.sampler)
            return self.accelerator.prepare(loader) if prepared else loader

    class SetEpoch(transformers.TrainerCallback):  # type: ignore[name-defined, misc]
        def __init__(self, sampler: trainer.DifficultySampler) -> None:
            self.sampler = sampler

        def on_epoch_begin(self, _args: Any, state: Any, *_: Any, **_others: Any) -> None:  # noqa: ANN401
            self.sampler.set_epoch(int(state.epoch))

    class StopAt(transformers.TrainerCallback):  # type: ignore[name-defined, misc]
        def on_step_end(self, _args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
            control.should_training_stop = control.should_save = state.global_step == 8

    samples = [{"index": position} for position in range(SAMPLES)]
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        num_train_epochs=EPOCHS,
        save_strategy="no",
        report_to="none",
        remove_unused_columns=False,
        disable_tqdm=True,
        use_cpu=True,
    )
    for resume in (False, True):
        sampler = trainer.DifficultySampler(
            difficulty, BATCH, "easy_first", epochs=EPOCHS, start=0.4
        )
        callbacks = [SetEpoch(sampler)] + [StopAt()] * (not resume)
        training = Sorted(Network(), arguments, train_dataset=samples, callbacks=callbacks)
        training.sampler = sampler
        training.train(resume_from_checkpoint=resume or None)

    assert training.state.global_step == EPOCHS * STEPS
    assert seen.epochs[0] == [batch for batches in epochs for batch in batches]


def test_one_process_of_accelerate_gets_every_epoch(
    sampler: trainer.DifficultySampler, epochs: list[Batches]
) -> None:
    loader = Accelerator(cpu=True).prepare(loader_of(sampler))

    assert [drawn(iter(loader)) for _ in range(EPOCHS)] == epochs


OF_BOTH = """
import torch.distributed
from torch.utils.data import DataLoader
import pytest
import trainer
from difficulty_service.base.errors import ConfigError

def both(batches):
    lists = [None, None]
    torch.distributed.all_gather_object(lists, [batch.tolist() for batch in batches])
    return lists

sampler = trainer.DifficultySampler(torch.arange(47.0), 10, "mixed")
loader = DataLoader(range(47), batch_sampler=sampler)
"""

BEFORE_THE_GROUP = """
torch.distributed.init_process_group("gloo")

first, second = both(loader)

assert [len(batch) for batch in first] == [5] * 5
assert [len(batch) for batch in second] == [5, 5, 4, 4, 4]
assert sorted(sum(first + second, [])) == list(range(47))
"""

BY_ACCELERATE = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
with pytest.raises(ConfigError, match="leave this data loader out of accelerator.prepare"):
    next(iter(accelerator.prepare(loader)))
loader = DataLoader(
    range(47), batch_sampler=trainer.DifficultySampler(torch.arange(47.0), 10, "mixed")
)
dealt = trainer.DifficultySampler(torch.arange(47.0), 10, "mixed", process=(0, 1))
whole = accelerator.prepare(DataLoader(range(47), batch_sampler=dealt))

for first, second in (both(loader), both(whole)):
    assert set(sum(first + second, [])) == set(range(47))
"""


@pytest.mark.parametrize("program", [BEFORE_THE_GROUP, BY_ACCELERATE])
def test_processes_that_start_after_the_sampler_share_every_batch(
    program: str, forkserver: ForkServerContext
) -> None:
    run_in_two(forkserver, OF_BOTH + program)
