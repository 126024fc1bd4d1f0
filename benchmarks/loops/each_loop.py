"""The same training in each of the five loops, as the page about own loops says it.

Every function trains a linear network for all epochs with plain gradient descent, may stop after
a number of steps with a checkpoint in its folder, and may resume from there. At the end of an epoch
it stops after the validation.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import trainer
from trainer.training.sampling import process_of_all

ALPHA, WRONG = 0.3, 0.2


class Recording(trainer.SampleObjective):
    """An objective that remembers which samples it was called with, by epoch."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.drawn: dict[int | None, list[list[int]]] = {}
        self.begun: list[tuple[int, int]] = []
        self.learned: list[int] = []

    def start_epoch(self, epoch: int, epochs: int) -> None:
        """Remembers which it was told."""
        super().start_epoch(epoch, epochs)
        if (epoch, epochs) not in self.begun[-1:]:
            self.begun.append((epoch, epochs))

    def __call__(self, logits: Tensor, targets: Tensor, positions: Tensor) -> Tensor:
        """Remembers the samples."""
        self.drawn.setdefault(self.epoch, []).append(positions.tolist())
        return super().__call__(logits, targets, positions)

    @property
    def memory(self) -> dict[str, Any]:
        """Where it is, and the numbers that its loss remembers."""
        state = self.state_dict()
        place = {name: state[name] for name in ("epoch", "batches")}
        return place | {k: v for k, v in state["loss"].items() if isinstance(v, Tensor)}

    def end_epoch(self, logits: Tensor, targets: Tensor) -> None:
        """Remembers the number of validation samples."""
        if self.learns:
            self.learned.append(len(targets))
        super().end_epoch(logits, targets)


@dataclass(frozen=True)
class Data:
    """Samples, of which the first are for training, and how they are trained with.

    Attributes:
        inputs: Features of the samples. Shape (samples, dim).
        labels: Class indices. Shape (samples,).
        weights: Weight of the entropy of each training sample. Shape (training samples,).
        difficulty: Difficulty of each training sample. Shape (training samples,).
    """

    inputs: Tensor
    labels: Tensor
    weights: Tensor
    difficulty: Tensor
    batch_size: int = 10
    epochs: int = 3
    rate: float = 0.3

    @classmethod
    def made_up(cls, train: int = 60, validation: int = 21, classes: int = 3) -> "Data":
        """Samples around as many corners as there are classes, a fifth with the wrong label."""
        generator = torch.Generator().manual_seed(0)
        number = train + validation
        right = torch.arange(number) % classes
        noise = torch.randn(number, 8, generator=generator)
        wrong = torch.rand(number, generator=generator) < WRONG
        return cls(
            noise + 1.5 * torch.eye(classes, 8)[right],
            torch.where(wrong, (right + 1) % classes, right),
            torch.rand(train, generator=generator),
            torch.randn(train, generator=generator),
        )

    @property
    def num_train(self) -> int:
        """Number of training samples."""
        return len(self.weights)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.labels.max()) + 1

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        return -(-self.num_train // self.batch_size)

    @property
    def train(self) -> TensorDataset:
        """The training samples."""
        return TensorDataset(self.inputs[: self.num_train], self.labels[: self.num_train])

    @property
    def validation(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels of the others."""
        return self.inputs[self.num_train :], self.labels[self.num_train :]

    @property
    def ids(self) -> list[str]:
        """Ids of the training samples."""
        return [f"{row}.png" for row in range(self.num_train)]

    def objective(self, loss: str) -> Recording:
        """A fresh objective."""
        return Recording(loss, sample_ids=self.ids, alpha=ALPHA, weights=self.weights)

    def sampler(self) -> trainer.DifficultySampler:
        """A fresh sampler."""
        return trainer.DifficultySampler(
            self.difficulty, self.batch_size, "mixed", epochs=self.epochs
        )


def network_of(data: Data) -> nn.Linear:
    """A network that always has the same first parameters."""
    network = nn.Linear(data.inputs.shape[1], data.num_classes)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        network.weight.copy_(torch.randn(network.weight.shape, generator=generator))
        network.bias.zero_()
    return network


def parameters_of(network: nn.Module) -> Tensor:
    """All parameters, one after the other."""
    return torch.cat([each.detach().flatten() for each in network.parameters()])


@dataclass
class Stop:
    """Where a run stops, and whether it goes on from there, or from which checkpoint."""

    folder: Path
    after: int | None = None
    resume: bool | str = False


def in_plain_pytorch(data: Data, objective: Recording, stop: Stop) -> Tensor:
    """A loop of one's own, among several processes with DistributedDataParallel."""
    from trainer.loops.plain import attach

    rank, processes = process_of_all()
    sampler = data.sampler()
    network = network_of(data)
    trained = nn.parallel.DistributedDataParallel(network) if processes > 1 else network
    optimiser = torch.optim.SGD(network.parameters(), data.rate)
    loop = attach(objective, sampler)
    file = stop.folder / "plain.pt"
    if stop.resume:
        checkpoint = torch.load(file, weights_only=True)
        network.load_state_dict(checkpoint["network"])
        loop.load_state_dict(checkpoint["loop"])
    loader = DataLoader(trainer.IndexedDataset(data.train), batch_sampler=sampler)

    def save() -> bool:
        state = {"network": network.state_dict(), "loop": loop.state_dict()}
        if rank == 0:
            torch.save(state, file)
        return True

    done = 0
    for _ in loop.epochs(data.epochs):
        for inputs, targets, index in loader:
            loss = objective(trained(inputs), targets, index).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            done += 1
            if done == stop.after and done % data.steps and save():
                return parameters_of(network)
        inputs, targets = data.validation
        with torch.no_grad():
            objective.end_epoch(network(inputs[rank::processes]), targets[rank::processes])
        if done == stop.after and save():
            break
    return parameters_of(network)


def in_accelerate(data: Data, objective: Recording, stop: Stop) -> Tensor:
    """A loop of Accelerate."""
    from accelerate import Accelerator

    from trainer.loops.accelerate import attach

    accelerator = Accelerator(cpu=True)
    network = network_of(data)
    optimiser = torch.optim.SGD(network.parameters(), data.rate)
    trained, optimiser = accelerator.prepare(network, optimiser)
    sampler = data.sampler()
    loop = attach(accelerator, objective, sampler)
    if stop.resume:
        accelerator.load_state(str(stop.folder / "accelerate"))
    loader = DataLoader(trainer.IndexedDataset(data.train), batch_sampler=sampler)
    if accelerator.num_processes == 1:
        loader = accelerator.prepare(loader)
    rank, processes = accelerator.process_index, accelerator.num_processes
    done = 0
    for _ in loop.epochs(data.epochs):
        for inputs, targets, index in loader:
            accelerator.backward(objective(trained(inputs), targets, index).mean())
            optimiser.step()
            optimiser.zero_grad()
            done += 1
            if done == stop.after and done % data.steps:
                accelerator.save_state(str(stop.folder / "accelerate"))
                return parameters_of(network)
        inputs, targets = data.validation
        with torch.no_grad():
            objective.end_epoch(network(inputs[rank::processes]), targets[rank::processes])
        if done == stop.after:
            accelerator.save_state(str(stop.folder / "accelerate"))
            break
    return parameters_of(network)


def in_hugging_face(data: Data, objective: Recording, stop: Stop) -> Tensor:
    """The Trainer of Hugging Face."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from trainer.loops.hugging_face import attach

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = network_of(data)

        def forward(self, inputs: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.linear(inputs)
            loss = logits.mean() if labels is None else nn.functional.cross_entropy(logits, labels)
            return {"loss": loss, "logits": logits}

    class StopThere(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == stop.after and state.global_step % data.steps:
                control.should_training_stop = control.should_save = True

        def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == stop.after:
                control.should_training_stop = control.should_save = True

    pairs = zip(data.inputs, data.labels.tolist(), strict=True)
    samples = [{"inputs": inputs, "labels": label} for inputs, label in pairs]
    network = Network()
    optimiser = torch.optim.SGD(network.parameters(), data.rate)
    loop = Trainer(
        network,
        TrainingArguments(
            str(stop.folder / "hugging_face"),
            num_train_epochs=data.epochs,
            per_device_train_batch_size=data.batch_size,
            max_grad_norm=0,
            eval_strategy="epoch",
            save_strategy="no",
            remove_unused_columns=False,
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=samples[: data.num_train],
        eval_dataset=samples[data.num_train :],
        callbacks=[StopThere()],
        optimizers=(optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)),
    )
    attach(loop, objective, data.sampler())
    loop.train(resume_from_checkpoint=stop.resume or None)
    return parameters_of(network)


def in_lightning(data: Data, objective: Recording, stop: Stop) -> Tensor:
    """Lightning, among several processes with its DDP."""
    import lightning

    from trainer.loops.lightning import attach

    file = stop.folder / "lightning.ckpt"

    class Stopped(Exception):
        pass

    class StopThere(lightning.Callback):
        def stop_at(self, loop: lightning.Trainer, *, within: bool) -> None:
            if loop.global_step == stop.after and bool(stop.after % data.steps) == within:
                loop.save_checkpoint(file)
                raise Stopped

        def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
            self.stop_at(trainer, within=True)

        def on_train_epoch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
            self.stop_at(trainer, within=False)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network_of(data)

        def training_step(self, batch: Any, _: int) -> Tensor:
            inputs, targets, index = batch
            return objective(self.network(inputs), targets, index).mean()

        def validation_step(self, batch: Any, _: int) -> dict[str, Tensor]:
            inputs, targets = batch
            return {"logits": self.network(inputs), "targets": targets}

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), data.rate)

    several: dict[str, Any] = {}
    if os.environ.get("WORLD_SIZE"):
        from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
        from lightning.pytorch.strategies import DDPStrategy

        strategy = DDPStrategy(process_group_backend="gloo")
        several = {"devices": 2, "strategy": strategy, "plugins": [TorchElasticEnvironment()]}
    module, sampler = Module(), data.sampler()
    loop = lightning.Trainer(
        accelerator="cpu",
        max_epochs=data.epochs,
        use_distributed_sampler=False,
        callbacks=[attach(objective, sampler), StopThere()],
        default_root_dir=stop.folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **several,
    )
    train = DataLoader(trainer.IndexedDataset(data.train), batch_sampler=sampler)
    with suppress(Stopped):
        loop.fit(
            module,
            train,
            DataLoader(TensorDataset(*data.validation), data.batch_size),
            ckpt_path=file if stop.resume else None,
        )
    return parameters_of(module)


def in_keras(data: Data, objective: Recording, stop: Stop) -> Tensor:
    """Keras with PyTorch as its backend; it stops at the end of an epoch alone."""
    os.environ["KERAS_BACKEND"] = "torch"
    os.environ["KERAS_HOME"] = str(stop.folder)
    import keras

    from trainer.loops.keras import attach

    network = keras.Sequential(
        [keras.Input((data.inputs.shape[1],)), keras.layers.Dense(data.num_classes)]
    )
    first = network_of(data)
    network.set_weights([first.weight.detach().numpy().T, first.bias.detach().numpy()])
    file = stop.folder / "keras.weights.h5"
    if stop.resume:
        network.load_weights(file)
    sampler = data.sampler()
    callback = attach(
        network, objective, sampler, validation=data.validation, memory=stop.folder / "keras.pt"
    )
    network.compile(
        keras.optimizers.SGD(data.rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )

    class StopThere(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if stop.after == (epoch + 1) * data.steps:
                network.save_weights(file)
                network.stop_training = True

    samples = TensorDataset(*data.train.tensors, torch.arange(data.num_train))
    network.fit(
        DataLoader(samples, batch_sampler=sampler),
        epochs=data.epochs,
        initial_epoch=1 if stop.resume else 0,
        callbacks=[callback, StopThere()],
        shuffle=False,
        verbose=0,
    )
    weight, bias = network.get_weights()
    return torch.from_numpy(np.concatenate([weight.T.ravel(), bias]))


@dataclass(frozen=True)
class _Rows:
    """Inputs in memory, as our trainer wants them."""

    inputs: Tensor

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """The rows of each batch."""
        return (self.inputs[rows] for rows in plan)


def in_our_trainer(data: Data, objective: trainer.SampleObjective) -> Tensor:
    """The loop of `trainer.train`, which calls the loss of the objective itself."""
    from accelerate import Accelerator

    from trainer.config import Recipe
    from trainer.samples import Samples
    from trainer.training.loop import TrainingCallbacks, train
    from trainer.training.state import TrainingProgress, TrainState
    from trainer.training.step import TrainingData

    network = network_of(data)
    accelerator = Accelerator(cpu=True)
    model, optimiser = accelerator.prepare(
        network, torch.optim.SGD(network.parameters(), data.rate)
    )
    state = TrainState(model, optimiser, objective.objective, None, TrainingProgress(), None)
    recipe = Recipe.model_validate(
        {
            "name": "own-loop",
            "data": {"train": "-", "kind": "features"},
            "model": {"name": "probe"},
            "optimiser": {"name": "sgd", "learning_rate": data.rate},
            "schedule": {"name": "constant"},
            "sampling": {"order": "mixed"},
            "training": {"epochs": data.epochs, "batch_size": data.batch_size},
        }
    )
    names = tuple(map(str, range(data.num_classes)))
    inputs, labels = data.train.tensors
    others, other_labels = data.validation
    others_ids = [f"v{row}" for row in range(len(others))]
    train(
        state,
        TrainingData(
            Samples(data.ids, labels, names, _Rows(inputs)),
            data.weights,
            Samples(others_ids, other_labels, names, _Rows(others)),
            difficulty=data.difficulty,
        ),
        recipe,
        0,
        accelerator,
        TrainingCallbacks(lambda _: None, lambda _: None, lambda: None, lambda: False),
    )
    return parameters_of(network)


Loop = Callable[[Data, Recording, Stop], Tensor]

LOOPS: dict[str, Loop] = {
    "plain": in_plain_pytorch,
    "accelerate": in_accelerate,
    "hugging_face": in_hugging_face,
    "lightning": in_lightning,
    "keras": in_keras,
}


def planned(data: Data) -> Iterator[list[list[int]]]:
    """The batches of each epoch, of a sampler that no loop touches."""
    sampler = data.sampler()
    return (list(sampler) for _ in range(data.epochs))
