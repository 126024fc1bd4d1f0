"""The tables of a recipe that decide the steps: order of samples, optimiser, learning rate."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator

from trainer.config.table import Fraction, NotNegative, Positive, RecipeTable


class RandomOrder(RecipeTable):
    """Every epoch has all samples, in another random order."""

    hints: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("scores", "column"), 'set sampling.order = "easy_first", "hard_first" or "mixed"'
    )
    order: Literal["random"] = "random"


class ScoredOrder(RecipeTable):
    """An order by the difficulty of the samples."""

    scores: str | None = None
    """Score file; `--scores` overrides it."""
    column: str = "rmd"
    """Column of the score file; larger is harder."""


class PacedOrder(ScoredOrder):
    """An order that begins with a part of the samples.

    The part grows evenly, as with the linear pacing of Wu et al. (2021). An epoch has as many
    steps as any other: its samples are drawn in random order, and once more where they run out.
    """

    start: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fraction of the samples in the first epoch."""
    until: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Fraction of all epochs after which every sample takes part."""


class EasyFirst(PacedOrder):
    """The easiest samples at first, then more of the harder ones, in random order."""

    order: Literal["easy_first"] = "easy_first"


class HardFirst(PacedOrder):
    """The hardest samples at first, then more of the easier ones, in random order."""

    order: Literal["hard_first"] = "hard_first"


class MixedOrder(ScoredOrder):
    """Every epoch has all samples, and every batch as many of each difficulty."""

    order: Literal["mixed"] = "mixed"


Sampling = Annotated[RandomOrder | EasyFirst | HardFirst | MixedOrder, Field(discriminator="order")]


class AnyOptimiser(RecipeTable):
    """The optimiser."""

    learning_rate: Positive = 0.1
    """Highest learning rate of the schedule."""
    weight_decay: NotNegative = 0.0
    """As PyTorch's optimiser of that name defines it."""
    gradient_clip: Positive | None = None
    """Maximum norm of the whole gradient; the papers of the focal family use 2."""


class Sgd(AnyOptimiser):
    """Stochastic gradient descent with momentum."""

    name: Literal["sgd"] = "sgd"
    momentum: Fraction = 0.9
    """Momentum."""
    nesterov: bool = False
    """Whether the momentum is Nesterov's."""

    @field_validator("nesterov")
    @classmethod
    def _has_momentum(cls, nesterov: bool, info: ValidationInfo) -> bool:  # noqa: FBT001
        if nesterov and info.data.get("momentum") == 0:
            raise ValueError("needs optimiser.momentum above 0, such as 0.9")
        return nesterov


class AdamW(AnyOptimiser):
    """Adam with decoupled weight decay."""

    name: Literal["adamw"] = "adamw"


class AdaGrad(AnyOptimiser):
    """Gradients divided by the root of the sum of their past squares."""

    name: Literal["adagrad"] = "adagrad"


Optimiser = Annotated[Sgd | AdamW | AdaGrad, Field(discriminator="name")]


class AnyRate(RecipeTable):
    """The schedule of the learning rate."""

    warmup: Fraction = 0.0
    """Fraction of all steps during which the rate rises from zero."""


class CosineRate(AnyRate):
    """The rate falls to zero by a cosine."""

    name: Literal["cosine"] = "cosine"


class ConstantRate(AnyRate):
    """The rate stays as it is."""

    name: Literal["constant"] = "constant"


class StepRate(AnyRate):
    """The rate is multiplied by a factor at each milestone."""

    name: Literal["steps"] = "steps"
    milestones: Annotated[tuple[Positive, ...], Field(validate_default=True)] = ()
    """Epochs, or where below 1 fractions of all, after which the rate is multiplied."""
    factor: Positive = 0.1
    """Factor at each milestone."""

    @field_validator("milestones")
    @classmethod
    def _has_milestones(cls, milestones: tuple[float, ...]) -> tuple[float, ...]:
        if not milestones:
            raise ValueError(
                'schedule.name = "steps" needs schedule.milestones, such as [0.5, 0.75] of all '
                "epochs"
            )
        return milestones


class OneCycleRate(AnyRate):
    """The rate rises linearly over the warmup, and falls linearly to zero."""

    name: Literal["one_cycle"] = "one_cycle"


Schedule = Annotated[
    CosineRate | ConstantRate | StepRate | OneCycleRate, Field(discriminator="name")
]
