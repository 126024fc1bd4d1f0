"""The contract of docs/own-loop.md, line by line, in each of the five loops."""

from collections.abc import Callable
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed import TCPStore

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
AFTER = (STEPS, STEPS + 2)
"""Steps after which runs stop: at the end of an epoch, and within one."""


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
@pytest.mark.parametrize("after", AFTER)
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
import traceback, warnings
from importlib import import_module
from pathlib import Path
import torch
from benchmarks.loops.each_loop import Data, LOOPS, Stop

os.environ["LOCAL_RANK"] = str(rank)
warnings.simplefilter("ignore")
torch.set_num_threads(1)
import_module(package)  # once for all runs: it takes far longer than they do


def run(loss, after, resume):
    if name == "plain":
        torch.distributed.init_process_group("gloo")
    data = Data.made_up()
    objective = data.objective(loss)
    parameters = LOOPS[name](data, objective, Stop(Path(folder), after, resume))
    return [objective.drawn, objective.learned, objective.memory, parameters]


# Each run has a process of its own, which knows nothing of the runs before.
for port, (file, *how) in zip(ports, runs):
    process = os.fork()
    if not process:
        os.environ["MASTER_PORT"] = str(port)
        try:
            torch.save(run(*how), Path(folder) / f"{file} {rank}.pt")
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(process, 0)[1]:
        raise RuntimeError(file)
"""

SHARED = {
    "plain": "torch",
    "accelerate": "accelerate",
    "hugging_face": "transformers.trainer",
    "lightning": "lightning",
}
"""The loops that two processes can share, and what they load for them."""

Found = list[tuple[dict[int, list[list[int]]], list[int], dict[str, Any], Tensor]]
InTwo = Callable[[str], dict[str, Found]]


@pytest.fixture(scope="module")
def in_two(forkserver: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> InTwo:
    """What two processes find in each of the runs of a loop: whole ones, stopped and resumed."""
    runs: list[tuple[str, str, int | None, bool]] = [(loss, loss, None, False) for loss in LOSSES]
    for after in AFTER:
        runs.append((f"stopped after {after}", "correctness_ranking", after, False))
        runs.append((f"resumed after {after}", "correctness_ranking", None, True))

    @cache
    def found(name: str) -> dict[str, Found]:
        folder = tmp_path_factory.mktemp(name)
        stores = [TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in runs]
        ports = [store.port for store in stores]
        values = {"folder": str(folder), "name": name, "package": SHARED[name]}
        run_in_two(forkserver, IN_TWO, runs=runs, ports=ports, **values)
        return {
            run: [torch.load(folder / f"{run} {rank}.pt", weights_only=True) for rank in range(2)]
            for run, *_ in runs
        }

    return found


@pytest.mark.parametrize("name", SHARED)
def test_two_processes_share_every_batch_and_have_the_memory_of_one(
    name: str, in_two: InTwo, tmp_path: Path
) -> None:
    alone = DATA.objective("adafocal")
    parameters = LOOPS["plain"](DATA, alone, Stop(tmp_path))

    first, second = in_two(name)["adafocal"]

    for epoch, batches in enumerate(planned(DATA)):
        pairs = zip(first[0][epoch], second[0][epoch], strict=True)
        assert [one + other for one, other in pairs] == batches
    assert [a + b for a, b in zip(first[1], second[1], strict=True)] == [VALIDATION] * EPOCHS
    for _, _, state, found in (first, second):
        torch.testing.assert_close(state, alone.memory, rtol=0, atol=1e-6)
        torch.testing.assert_close(found, parameters, rtol=0, atol=1e-6)


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("name", SHARED)
def test_two_processes_that_resume_go_on_as_if_they_had_not_stopped(
    name: str, after: int, in_two: InTwo
) -> None:
    runs = in_two(name)

    whole, resumed = runs["correctness_ranking"], runs[f"resumed after {after}"]

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
