"""The contract of docs/own-loop.md, line by line, in each of the five loops."""

from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.loops.each_loop import LOOPS, Data, Recording, Stop, in_our_trainer, planned
from tests.two_processes import run_in_two

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Lightning and Keras, about PyTorch
]

LOSSES = ["adafocal", "correctness_ranking"]
DATA = Data.made_up()
EPOCHS, STEPS, SAMPLES = DATA.epochs, DATA.steps, DATA.num_train
VALIDATION = len(DATA.labels) - SAMPLES


@pytest.fixture(params=LOOPS)
def loop(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Tensor]:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    package = {"hugging_face": "transformers", "plain": "torch"}.get(request.param, request.param)
    pytest.importorskip(package)
    return LOOPS[request.param]


@pytest.mark.parametrize("loss", LOSSES)
def test_each_epoch_begins_once_and_has_the_batches_of_its_number(
    loop: Callable[..., Tensor], loss: str, tmp_path: Path
) -> None:
    objective = DATA.objective(loss)

    loop(DATA, objective, Stop(tmp_path))

    assert objective.begun == [(epoch, EPOCHS) for epoch in range(EPOCHS)]
    assert objective.drawn == dict(enumerate(planned(DATA)))
    assert objective.learned == [VALIDATION] * EPOCHS * objective.learns


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loop_comes_to_the_parameters_and_the_memory_of_our_trainer(
    loop: Callable[..., Tensor], loss: str, tmp_path: Path
) -> None:
    ours, theirs = DATA.objective(loss), DATA.objective(loss)
    parameters = in_our_trainer(DATA, ours)

    found = loop(DATA, theirs, Stop(tmp_path))

    torch.testing.assert_close(found, parameters, rtol=0, atol=1e-6)
    memory = {name: value for name, value in theirs.memory.items() if isinstance(value, Tensor)}
    expected = {name: ours.memory[name] for name in memory}
    assert len(memory) > 1
    torch.testing.assert_close(memory, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("after", [STEPS, STEPS + 2])
def test_a_resumed_run_goes_on_with_the_batches_and_the_memory_of_an_unbroken_one(
    loop: Callable[..., Tensor], loss: str, after: int, tmp_path: Path
) -> None:
    if loop is LOOPS["keras"] and after % STEPS:
        pytest.skip("Keras begins again with the epoch")
    whole, stopped, resumed = (DATA.objective(loss) for _ in range(3))
    parameters = loop(DATA, whole, Stop(tmp_path))

    loop(DATA, stopped, Stop(tmp_path, after=after))
    resumed_parameters = loop(DATA, resumed, Stop(tmp_path, resume=True))

    epochs = range(EPOCHS)
    both = [stopped.drawn.get(epoch, []) + resumed.drawn.get(epoch, []) for epoch in epochs]
    assert sum(len(batches) for batches in stopped.drawn.values()) == after
    assert both == [*planned(DATA)]
    torch.testing.assert_close(resumed.memory, whole.memory, rtol=0, atol=1e-6)
    torch.testing.assert_close(resumed_parameters, parameters, rtol=0, atol=1e-6)


IN_TWO = """
os.environ["LOCAL_RANK"] = str(rank)
import warnings
from pathlib import Path
import torch
from benchmarks.loops.each_loop import Data, LOOPS, Stop

warnings.simplefilter("ignore")
torch.set_num_threads(1)
if name == "plain":
    torch.distributed.init_process_group("gloo")
data = Data.made_up()
objective = data.objective(loss)
parameters = LOOPS[name](data, objective, Stop(Path(folder), after, resume))
found = [objective.drawn, objective.learned, objective.memory, parameters]
torch.save(found, Path(folder) / f"{rank}.pt")
"""


def in_two(
    forkserver: ForkServerContext,
    folder: Path,
    name: str,
    loss: str,
    **stop: Any,  # noqa: ANN401
) -> list[tuple[dict[int, list[list[int]]], list[int], dict[str, Any], Tensor]]:
    stop = {"after": None, "resume": False} | stop
    run_in_two(forkserver, IN_TWO, folder=str(folder), name=name, loss=loss, **stop)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


SHARED = ["plain", "accelerate", "hugging_face", "lightning"]


@pytest.mark.parametrize("name", SHARED)
def test_two_processes_share_every_batch_and_have_the_memory_of_one(
    name: str, forkserver: ForkServerContext, tmp_path: Path
) -> None:
    alone = DATA.objective("adafocal")
    parameters = LOOPS["plain"](DATA, alone, Stop(tmp_path))

    first, second = in_two(forkserver, tmp_path, name, "adafocal")

    for epoch, batches in enumerate(planned(DATA)):
        pairs = zip(first[0][epoch], second[0][epoch], strict=True)
        assert [one + other for one, other in pairs] == batches
    assert [a + b for a, b in zip(first[1], second[1], strict=True)] == [VALIDATION] * EPOCHS
    for _, _, state, found in (first, second):
        torch.testing.assert_close(state, alone.memory, rtol=0, atol=1e-6)
        torch.testing.assert_close(found, parameters, rtol=0, atol=1e-6)


@pytest.mark.parametrize("after", [STEPS, STEPS + 2])
@pytest.mark.parametrize("name", SHARED)
def test_two_processes_that_resume_go_on_as_if_they_had_not_stopped(
    name: str, after: int, forkserver: ForkServerContext, tmp_path: Path
) -> None:
    whole = in_two(forkserver, tmp_path, name, "correctness_ranking")

    in_two(forkserver, tmp_path, name, "correctness_ranking", after=after)
    resumed = in_two(forkserver, tmp_path, name, "correctness_ranking", resume=True)

    for before, now in zip(whole, resumed, strict=True):
        torch.testing.assert_close(now[2], before[2], rtol=0, atol=1e-6)
        torch.testing.assert_close(now[3], before[3], rtol=0, atol=1e-6)


def test_a_sample_counts_once_an_epoch_and_validation_never(
    loop: Callable[..., Tensor], tmp_path: Path
) -> None:
    objective = DATA.objective("correctness_ranking")

    loop(DATA, objective, Stop(tmp_path))

    memory = objective.memory
    assert memory["counted"].all()
    assert 0 < memory["counts"].max() <= EPOCHS
    drawn = sum(len(batch) for batches in objective.drawn.values() for batch in batches)
    assert drawn == EPOCHS * SAMPLES


def test_an_epoch_without_validation_predictions_is_an_error_of_a_loss_that_learns() -> None:
    objective: Recording = DATA.objective("adafocal")
    objective.start_epoch(0, EPOCHS)

    with pytest.raises(RuntimeError, match="call end_epoch with them after every epoch"):
        objective.start_epoch(1, EPOCHS)
