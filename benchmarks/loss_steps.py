"""What a training step costs with every loss, as a ratio to the step with plain cross-entropy.

Run: python -m benchmarks.loss_steps [--device auto] [--seconds 10]

The losses take turns, and each is compared with the cross-entropy of the same round; shown are the
medians of these ratios over the rounds and, in brackets, the middle half of them. A second
cross-entropy shows what is noise. A step is a ResNet-18's on 32x32 images, with the hooks of the
losses that have a memory; the loss alone is forward and backward down to the logits.

On a CPU, times are the processor's for one thread. A step of the network varies by several percent
there, which hides the loss. So its forward and backward pass and the optimiser's step, the same for
all losses, are timed once a round, and each loss on the logits between them; whole steps with and
without difficulty follow as a check. On a GPU all are whole steps, on the wall clock, in bf16.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, Loss, call_hook, make_loss
from trainer.models import build_model
from trainer.samples import InputSpec
from trainer.training.accelerator import make_accelerator, to_memory_format
from trainer.training.objective import Objective

REFERENCE, AGAIN = "cross_entropy", "cross_entropy, again"
CONSTANT, DIFFICULTY = "  + constant entropy", "  + difficulty-weighted entropy"
FLOOR = 1.02  # largest ratio of a step with difficulty

TRAINING_SAMPLES = 50_000  # correctness ranking looks at its whole history in every step
CLASSES, ALPHA, EPOCHS = 10, 0.2, 100
ALONE_SAMPLES, ALONE_CLASSES, ALONE_REPEATS = 128, (10, 1000), 20
FEWEST_ROUNDS, MOST_ROUNDS = 5, 100
GPU_STEPS = 5  # in a row, so that the queue of the GPU stays as full as in training


@dataclass(frozen=True)
class Candidate:
    """An objective and one weight per training sample, or None for weights of one."""

    objective: Objective
    weights: Tensor | None = None


Candidates = dict[str, Candidate]


@dataclass(frozen=True)
class Batch:
    """Positions in the training set, inputs or logits, and targets."""

    positions: Tensor
    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Clock:
    """Seconds of the processor; with a GPU, on the wall once it has done all it was given."""

    on_gpu: bool

    def now(self) -> float:
        """Since some moment."""
        if self.on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() if self.on_gpu else time.process_time()

    def time(self, work: Callable[[], object], repeats: int = 1) -> float:
        """Seconds of one of several runs."""
        start = self.now()
        for _ in range(repeats):
            work()
        return (self.now() - start) / repeats


@dataclass(frozen=True)
class Classifier:
    """A network in training."""

    network: nn.Module
    optimiser: torch.optim.Optimizer

    def forward(self, images: Tensor) -> Tensor:
        """Logits, float32, as the training loop computes them."""
        return self.network(to_memory_format(images, channels_last=True)).float()

    def step(self, batch: Batch, candidate: Candidate) -> None:
        """A whole step."""
        logits = self.forward(batch.inputs)
        learn(candidate, logits, batch, logits.detach().argmax(dim=1) == batch.targets)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)


@dataclass
class Ratios:
    """Those of every candidate over the rounds, and the seconds of the reference."""

    of: dict[str, list[float]] = field(default_factory=dict)
    reference: list[float] = field(default_factory=list)

    def add(self, seconds: dict[str, float]) -> None:
        """Takes up one round."""
        self.reference.append(seconds[REFERENCE])
        for name, value in seconds.items():
            self.of.setdefault(name, []).append(value / seconds[REFERENCE])

    def show(self, name: str, digits: int) -> str:
        """Median and quartiles of a candidate."""
        low, middle, high = statistics.quantiles(self.of[name], n=4, method="inclusive")
        return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"

    def scale(self) -> str:
        """Its milliseconds and the number of rounds."""
        return f"{1000 * statistics.median(self.reference):,.3f} ms, {len(self.reference)} rounds"


def ready(loss: Loss) -> Loss:
    """A loss in the middle of training: its memory, if it has one, is in use."""
    generator = torch.Generator().manual_seed(0)
    confidence = 1 - 0.9 * torch.rand(TRAINING_SAMPLES // 10, generator=generator).square()
    call_hook(loss, "before_training", [str(row) for row in range(TRAINING_SAMPLES)])
    call_hook(loss, "before_epoch", EPOCHS // 2, EPOCHS)
    call_hook(loss, "after_epoch", confidence, torch.rand(confidence.shape) < confidence)
    return loss


def make_candidates() -> Candidates:
    """All of them, those of difficulty behind cross-entropy."""
    weights = torch.rand(TRAINING_SAMPLES, generator=torch.Generator().manual_seed(0))
    plain = make_loss(REFERENCE)
    candidates = {
        REFERENCE: Candidate(Objective(plain)),
        AGAIN: Candidate(Objective(plain)),
        CONSTANT: Candidate(Objective(plain, ALPHA)),
        DIFFICULTY: Candidate(Objective(plain, ALPHA), weights),
    }
    for name in sorted(LOSSES | LOSSES_WITH_MEMORY):
        candidates.setdefault(name, Candidate(Objective(ready(make_loss(name)))))
    return candidates


def make_batch(inputs: Tensor, num_classes: int) -> Batch:
    """Inputs with random targets, at random places of the training set."""
    generator = torch.Generator().manual_seed(0)
    positions = torch.randperm(TRAINING_SAMPLES, generator=generator)[: len(inputs)]
    targets = torch.randint(num_classes, (len(inputs),), generator=generator)
    return Batch(positions, inputs, targets.to(inputs.device))


def make_classifier(accelerator: Accelerator, name: str = "resnet18") -> Classifier:
    """A fresh ResNet, prepared as for training, with a rate that leaves it fresh."""
    torch.manual_seed(0)
    spec = InputSpec((3, 32, 32), torch.full((3,), 127.5), torch.full((3,), 64.0))
    model = build_model(ModelConfig(name=name), spec, CLASSES)
    model = model.to(memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    return Classifier(*accelerator.prepare(model, optimiser))


def learn(candidate: Candidate, logits: Tensor, batch: Batch, correct: Tensor) -> None:
    """What a step does because of its loss: hooks, weights, forward and backward."""
    loss, weights = candidate.objective.loss, candidate.weights
    if hasattr(loss, "before_batch"):
        loss.before_batch([str(position) for position in batch.positions.tolist()])
    if weights is not None:
        weights = weights[batch.positions].to(logits.device, non_blocking=True)
    losses = candidate.objective(logits, batch.targets, weights)
    (losses.sum() * (1 / len(losses))).backward()
    call_hook(loss, "after_batch", correct)


def in_turns(candidates: Candidates, number: int) -> list[str]:
    """Names in the order of a round: each begins one of them, for the first finds cold caches."""
    names, start = [*candidates], number % len(candidates)
    return names[start:] + names[:start]


def one_round(
    candidates: Candidates,
    number: int,
    work: Callable[[Candidate], None],
    clock: Clock,
    repeats: int,
) -> dict[str, float]:
    """Seconds of every candidate."""
    names = in_turns(candidates, number)
    return {name: clock.time(partial(work, candidates[name]), repeats) for name in names}


def measure(do_round: Callable[[int], dict[str, float]], seconds: float) -> Ratios:
    """Repeats rounds for `seconds` of wall-clock time, after a warm-up, and a few at least."""
    ratios = Ratios()
    do_round(0)
    began = time.perf_counter()
    for number in range(MOST_ROUNDS):
        if number >= FEWEST_ROUNDS and time.perf_counter() - began > seconds:
            break
        ratios.add(do_round(number))
    return ratios


def alone(candidates: Candidates, classes: int, device: torch.device, seconds: float) -> Ratios:
    """Losses on fixed logits, some right and some wrong."""
    torch.manual_seed(0)
    logits = 2 * torch.randn(ALONE_SAMPLES, classes)
    batch = make_batch(logits.to(device), classes)
    batch.inputs[torch.arange(0, ALONE_SAMPLES, 2), batch.targets[::2]] += 6
    correct = batch.inputs.argmax(dim=1) == batch.targets

    def once(candidate: Candidate) -> None:
        learn(candidate, batch.inputs.detach().requires_grad_(), batch, correct)

    clock = Clock(batch.inputs.is_cuda)
    return measure(
        lambda number: one_round(candidates, number, once, clock, ALONE_REPEATS), seconds
    )


def whole_steps(candidates: Candidates, model: Classifier, batch: Batch, seconds: float) -> Ratios:
    """A step of the network for each candidate."""
    clock = Clock(batch.inputs.is_cuda)
    repeats = GPU_STEPS if clock.on_gpu else 1
    once = partial(model.step, batch)
    return measure(lambda number: one_round(candidates, number, once, clock, repeats), seconds)


def shared_steps(candidates: Candidates, model: Classifier, batch: Batch, seconds: float) -> Ratios:
    """One step of the network a round, in which every candidate gets the logits in turn."""
    clock = Clock(on_gpu=False)

    def shared_round(number: int) -> dict[str, float]:
        start = clock.now()
        logits = model.forward(batch.inputs)
        correct = logits.detach().argmax(dim=1) == batch.targets
        network = clock.now() - start
        own = {}
        for name in in_turns(candidates, number):
            leaf = logits.detach().requires_grad_()
            own[name] = clock.time(partial(learn, candidates[name], leaf, batch, correct))
        start = clock.now()
        logits.backward(leaf.grad)
        model.optimiser.step()
        model.optimiser.zero_grad(set_to_none=True)
        network += clock.now() - start
        return {name: network + seconds for name, seconds in own.items()}

    return measure(shared_round, seconds)


def main() -> None:
    """Prints one line per loss, and whether weighing by difficulty is as good as free."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda")
    parser.add_argument("--seconds", type=float, default=10, help="for each of four parts")
    arguments = parser.parse_args()
    seconds = arguments.seconds
    accelerator = make_accelerator(arguments.device, "auto")
    on_gpu = accelerator.device.type == "cuda"
    if not on_gpu:
        torch.set_num_threads(1)
    candidates = make_candidates()
    images = torch.randint(256, (128 if on_gpu else 32, 3, 32, 32), dtype=torch.uint8)
    batch = make_batch(images.to(accelerator.device), CLASSES)
    losses = [alone(candidates, size, batch.inputs.device, seconds) for size in ALONE_CLASSES]
    classifier = make_classifier(accelerator)
    steps = (whole_steps if on_gpu else shared_steps)(candidates, classifier, batch, seconds)
    print_table(candidates, steps, losses)
    if not on_gpu:
        few = {name: candidates[name] for name in (REFERENCE, DIFFICULTY)}
        whole = whole_steps(few, classifier, batch, seconds)
        print(f"whole steps, difficulty-weighted: {whole.show(DIFFICULTY, 3)}; {whole.scale()}")
    ratio = statistics.median(steps.of[DIFFICULTY])
    verdict = "PASS" if ratio <= FLOOR else "FAIL"
    print(f"{verdict}: with difficulty a step takes {ratio:.4f}; at most {FLOOR} is asked")


def print_table(candidates: Candidates, steps: Ratios, losses: list[Ratios]) -> None:
    """Ratios to cross-entropy, and what it takes itself."""
    titles = [f"alone, {ALONE_SAMPLES} x {count:,}" for count in ALONE_CLASSES]
    print(f"{'':32}{'ResNet-18 step':>24}" + "".join(f"{title:>24}" for title in titles))
    print(f"{REFERENCE:32}" + "".join(f"{part.scale():>24}" for part in [steps, *losses]))
    for name in [*candidates][1:]:
        row = [steps.show(name, 4), *(part.show(name, 2) for part in losses)]
        print(f"{name:32}" + "".join(f"{cell:>24}" for cell in row))


if __name__ == "__main__":
    main()
