"""What each `attach` refuses, and what is saved and goes on of an objective and a sampler."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.loops.each_loop import Data, Stop, in_hugging_face, network_of
from difficulty_service.base.errors import ConfigError
from trainer.loops.plain import attach

DATA = Data.made_up()
LOGITS, TARGETS = torch.eye(3), torch.arange(3)


def test_without_a_sampler_the_epochs_that_are_left_follow_the_last_one_that_has_ended() -> None:
    loop = attach(DATA.objective("adafocal"))
    epochs = loop.epochs(4)

    next(epochs)
    within = loop.state_dict()
    loop.objective.end_epoch(LOGITS, TARGETS)
    ended = loop.state_dict()

    for state, left in ((within, [0, 1]), (ended, [1, 2])):
        again = attach(DATA.objective("adafocal"))
        again.load_state_dict(state)
        begun = []
        for epoch in again.epochs(4):
            begun.append(epoch)
            again.objective.end_epoch(LOGITS, TARGETS)
        assert begun[:2] == left
        assert begun[-1] == 3


def test_a_checkpoint_between_the_last_batch_and_the_end_of_an_epoch_is_not_taken_for_its_end() -> (
    None
):
    sampler = DATA.sampler()
    loop = attach(DATA.objective("adafocal"), sampler)
    next(loop.epochs(3))
    for batch in sampler:
        loop.objective(
            torch.zeros(len(batch), 3), torch.zeros(len(batch)).long(), torch.tensor(batch)
        )

    again = attach(DATA.objective("adafocal"), DATA.sampler())
    again.load_state_dict(loop.state_dict())

    with pytest.raises(RuntimeError, match="call end_epoch with them after every epoch"):
        next(again.epochs(3))
    again.objective.end_epoch(LOGITS, TARGETS)
    assert next(again.epochs(3)) == 1


@pytest.mark.parametrize("has_sampler", [True, False])
def test_a_checkpoint_with_a_sampler_is_not_for_a_loop_without_one(has_sampler: bool) -> None:  # noqa: FBT001
    samplers = [DATA.sampler() if each else None for each in (has_sampler, not has_sampler)]
    saved, other = (attach(DATA.objective("focal"), sampler) for sampler in samplers)

    with pytest.raises(ValueError, match="attach the same as before"):
        other.load_state_dict(saved.state_dict())


class Network(nn.Module):
    """A network as the Trainer of Hugging Face wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.config = network_of(DATA), None

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.linear(inputs)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


REFUSED_BY_A_TRAINER: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("focal", {"remove_unused_columns": True}, {}, "set remove_unused_columns=False"),
    ("focal", {"label_smoothing_factor": 0.1}, {}, "label_smoothing_factor has no effect"),
    ("focal", {}, {"train_dataset": [{"labels": 0}]}, "1 training samples, and the objective 60"),
    ("focal", {}, {"train_dataset": None}, "no train_dataset with positions"),
    ("adafocal", {"eval_strategy": "no"}, {}, 'eval_strategy="epoch"'),
    (
        "adafocal",
        {},
        {"preprocess_logits_for_metrics": lambda logits, _: logits.argmax(1)},
        "leave out preprocess_logits_for_metrics",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "arguments", "options", "message"), REFUSED_BY_A_TRAINER)
def test_a_trainer_that_would_not_compute_the_objective_is_refused(
    loss: str, arguments: dict[str, Any], options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    from trainer.loops import hugging_face

    samples = [{"inputs": [0.0] * 8, "labels": 0}] * 60
    usual = {"eval_strategy": "epoch", "remove_unused_columns": False, "use_cpu": True}
    settings = transformers.TrainingArguments(str(tmp_path), report_to="none", **usual | arguments)
    given = {"train_dataset": samples, "eval_dataset": samples[:3]} | options

    with pytest.raises(ConfigError, match=message):
        hugging_face.attach(
            transformers.Trainer(Network(), settings, **given), DATA.objective(loss)
        )


@pytest.mark.slow
def test_a_trainer_keeps_its_own_metrics_and_learns_from_the_evaluation_of_an_epoch_alone(
    tmp_path: Path,
) -> None:
    transformers = pytest.importorskip("transformers")
    from trainer.loops import hugging_face

    pairs = zip(DATA.inputs, DATA.labels.tolist(), strict=True)
    samples = [{"inputs": inputs, "labels": label} for inputs, label in pairs]
    settings = transformers.TrainingArguments(
        str(tmp_path),
        num_train_epochs=1,
        eval_strategy="epoch",
        save_strategy="no",
        remove_unused_columns=False,
        report_to="none",
        use_cpu=True,
    )
    loop = transformers.Trainer(
        Network(),
        settings,
        train_dataset=samples[:60],
        eval_dataset=samples[60:],
        compute_metrics=lambda evaluated: {"rows": len(evaluated.label_ids)},
    )
    objective = DATA.objective("adafocal")
    hugging_face.attach(loop, objective)

    loop.train()
    learned = objective.memory["gammas"].clone()
    metrics = loop.evaluate(samples[:7])

    assert metrics["eval_rows"] == 7
    assert objective.learned == [21]
    assert torch.equal(objective.memory["gammas"], learned)


@pytest.mark.slow
def test_a_trainer_resumes_with_the_memory_beside_the_checkpoint_that_is_named(
    tmp_path: Path,
) -> None:
    pytest.importorskip("transformers")
    whole, resumed = DATA.objective("adafocal"), DATA.objective("adafocal")
    in_hugging_face(DATA, whole, Stop(tmp_path))
    in_hugging_face(DATA, DATA.objective("adafocal"), Stop(tmp_path, after=DATA.steps))
    moved = (tmp_path / "hugging_face" / f"checkpoint-{DATA.steps}").rename(tmp_path / "moved")

    in_hugging_face(DATA, resumed, Stop(tmp_path, resume=str(moved)))

    torch.testing.assert_close(resumed.memory, whole.memory, rtol=0, atol=1e-6)
    (moved / "objective.pt").unlink()
    with pytest.raises(ConfigError, match="has no state of an objective"):
        in_hugging_face(DATA, DATA.objective("adafocal"), Stop(tmp_path, resume=str(moved)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Lightning, about PyTorch
def test_a_lightning_module_without_validation_predictions_is_refused(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from trainer.loops import lightning as difficulty_in_lightning

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def training_step(self, *_: Any) -> None:  # noqa: ANN401
            return None

        def validation_step(self, *_: Any) -> None:  # noqa: ANN401
            return None

        def configure_optimizers(self) -> None:
            return None

    callback = difficulty_in_lightning.attach(DATA.objective("adafocal"))
    loop = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        callbacks=[callback],
        default_root_dir=tmp_path,
    )
    loaders = [DataLoader(TensorDataset(*DATA.validation), 10) for _ in range(2)]

    with pytest.raises(ConfigError, match=r'return \{"logits": ..., "targets": ...\}'):
        loop.fit(Module(), *loaders)


@pytest.fixture
def keras(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:  # noqa: ANN401 - a module
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("KERAS_BACKEND", os.environ.get("KERAS_BACKEND", "torch"))
    return pytest.importorskip("keras")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "activation", "message"),
    [("focal", "softmax", "ends in probabilities"), ("adafocal", None, "pass validation=")],
)
def test_a_network_of_keras_that_does_not_fit_the_loss_is_refused(
    keras: Any,  # noqa: ANN401
    loss: str,
    activation: str | None,
    message: str,
) -> None:
    from trainer.loops import keras as difficulty_in_keras

    network = keras.Sequential([keras.layers.Dense(3, activation=activation)])

    with pytest.raises(ConfigError, match=message):
        difficulty_in_keras.attach(network, DATA.objective(loss))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras 3.15 and NumPy 2
def test_keras_adds_regularised_layers_and_refuses_weights_of_validation_samples(
    keras: Any,  # noqa: ANN401
) -> None:
    from trainer.loops import keras as difficulty_in_keras

    layer = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.5))
    network = keras.Sequential([keras.Input((8,)), layer])
    objective = DATA.objective("focal")
    callback = difficulty_in_keras.attach(network, objective)
    network.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs, labels = DATA.train.tensors
    positions = torch.arange(60)
    kernel = torch.from_numpy(layer.get_weights()[0])
    with torch.no_grad():
        expected = DATA.objective("focal")(network(inputs), labels, positions).mean()
    expected = expected + 0.5 * kernel.square().sum()

    arrays = [each.numpy() for each in (inputs, labels, positions)]
    options = {"batch_size": 60, "shuffle": False, "callbacks": [callback], "verbose": 0}
    history = network.fit(*arrays[:2], sample_weight=arrays[2], **options)

    assert history.history["loss"][0] == pytest.approx(float(expected), abs=1e-5)
    with pytest.raises(ConfigError, match="leave it out of validation"):
        network.evaluate(*arrays[:2], sample_weight=arrays[2], verbose=0)
