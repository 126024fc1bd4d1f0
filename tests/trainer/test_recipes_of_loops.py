"""The examples of the page about own loops, resumed, cut short, and looked into."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # of Lightning and Keras, about PyTorch
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "own-loop.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```\n", PAGE.read_text(), re.MULTILINE | re.DOTALL)


class Epochs:
    """A loss that remembers which epochs were begun, and the samples of each batch."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []

    def before_epoch(self, epoch: int, epochs: int) -> None:
        if (epoch, epochs) not in self.begun[-1:]:
            self.begun.append((epoch, epochs))

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets, reduction="none")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", "torch")  # the example sets it for good
    monkeypatch.chdir(tmp_path)
    return tmp_path


def example(package: str, changes: dict[str, str], until: str | None = None) -> dict[str, Any]:
    """Runs an example, in which some words are others, and returns its names."""
    pytest.importorskip(package)
    text = next(each for each in EXAMPLES if re.search(rf"(import|from) {package}\b", each))
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": "example", "recorder": Epochs()}
    program = EXAMPLES[0] + text.partition(until or "\0")[0]
    exec(compile(program, str(PAGE), "exec"), names)  # noqa: S102 - our own page
    return names


@pytest.mark.parametrize(
    ("length", "begun"),
    [
        ("num_train_epochs=2.5", [(0, 3), (1, 3), (2, 3)]),
        ("num_train_epochs=0.5", [(0, 1)]),
        ("max_steps=15", [(0, 2), (1, 2)]),
    ],
)
def test_a_trainer_of_hugging_face_says_which_epoch_of_how_many_begins(
    length: str, begun: list[tuple[int, int]]
) -> None:
    names = example("transformers", {'"adafocal"': "recorder", "num_train_epochs=2": length})

    assert names["recorder"].begun == begun


def test_a_resumed_trainer_of_hugging_face_has_the_memory_of_its_loss() -> None:
    whole = example("transformers", {})
    resuming = {"weighted.train()": 'weighted.train("trainer_output/checkpoint-10")'}

    resumed = example("transformers", resuming)

    torch.testing.assert_close(resumed["objective"].state_dict(), whole["objective"].state_dict())


def fit(names: dict[str, Any], checkpoint: Path | None = None, **options: Any) -> Any:  # noqa: ANN401
    callbacks = [names["attach"](names["objective"]), *options.pop("callbacks", [])]
    options = {"accelerator": "cpu", "logger": False, "callbacks": callbacks} | options
    fitting = names["lightning"].Trainer(**options)
    samples = names["trainer"].IndexedDataset(names["train"])
    loaders = [names["DataLoader"](each, 50) for each in (samples, names["validation"])]
    fitting.fit(names["Classifier"](), *loaders, ckpt_path=checkpoint)
    return fitting


@pytest.mark.parametrize(
    ("length", "epochs"),
    [
        ({"max_epochs": 2}, 2),
        ({"max_steps": 15}, 2),
        ({"max_steps": 6, "accumulate_grad_batches": 4}, 2),
    ],
)
def test_lightning_says_which_epoch_of_how_many_begins(length: dict[str, int], epochs: int) -> None:
    names = example("lightning", {'"correctness_ranking"': "recorder"}, "lightning.Trainer(")

    fit(names, **length)

    assert names["recorder"].begun == [(epoch, epochs) for epoch in range(epochs)]


def test_lightning_resumed_within_an_epoch_says_which_that_is(folder: Path) -> None:
    names = example("lightning", {'"correctness_ranking"': "recorder"}, "lightning.Trainer(")
    saving = names["lightning"].pytorch.callbacks.ModelCheckpoint(
        folder, "within", every_n_train_steps=13
    )
    fit(names, max_steps=15, callbacks=[saving])

    resumed = example("lightning", {'"correctness_ranking"': "recorder"}, "lightning.Trainer(")
    fit(resumed, folder / "within.ckpt", max_epochs=3)

    assert resumed["recorder"].begun == [(1, 3), (2, 3)]


def test_lightning_resumed_has_the_memory_of_its_loss(folder: Path) -> None:
    adafocal = {"correctness_ranking": "adafocal"}
    names = example("lightning", adafocal, "lightning.Trainer(")
    fit(names, max_epochs=1).save_checkpoint(folder / "one.ckpt")

    resumed = example("lightning", adafocal, "lightning.Trainer(")
    resumed["Classifier"].on_train_start = lambda _: resumed.update(
        first=resumed["objective"].state_dict()["loss"]
    )
    fit(resumed, folder / "one.ckpt", max_epochs=2)

    torch.testing.assert_close(resumed["first"], names["objective"].state_dict()["loss"])


@pytest.mark.parametrize("loss", ["adafocal", "correctness_ranking", "scheduled_focal"])
def test_keras_reports_the_accuracy_of_labels(loss: str) -> None:
    names = example("keras", {"adafocal": loss})

    network, history = names["network"], names["history"].history
    for samples, name in ((slice(500), "accuracy"), (slice(500, None), "val_accuracy")):
        predicted = network.predict(names["features"][samples], verbose=0).argmax(1)
        accuracy = (predicted == names["labels"][samples]).mean()
        assert history[name][-1] == pytest.approx(accuracy, abs=0.1)


def test_keras_counts_training_samples_alone_and_each_once_an_epoch() -> None:
    names = example("keras", {"adafocal": "correctness_ranking"})

    state = names["objective"].state_dict()["loss"]

    assert state["counted"].all()
    right = names["history"].history["accuracy"]
    assert state["counts"].sum().item() == pytest.approx(500 * sum(right), abs=0.5)


def test_class_weights_beside_positions_are_refused_by_keras() -> None:
    with pytest.raises(ValueError, match="class_weight"):
        example("keras", {"epochs=2": "epochs=2, class_weight={0: 1, 1: 2, 2: 3, 3: 4}"})
