"""Keys of a recipe that only have an effect together with the value of another key."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any

from trainer.config import Recipe
from trainer.recipes.messages import wrong_value
from trainer.transformers_files import encoder_of


@dataclass(frozen=True)
class Condition:
    """What a key needs to have an effect.

    Attributes:
        holds: Whether a recipe has what is needed.
        remedy: What is needed, as a template of `str.format` with the recipe.
        decided_by: Keys that decide it.
    """

    holds: Callable[[Recipe], bool]
    remedy: str
    decided_by: tuple[str, ...]


NEEDS_WEIGHTS = (
    'has no effect with regulariser.weights = "constant"; set regulariser.weights = "scores" and '
    "regulariser.alpha above 0, such as 0.3"
)
"""What the score file of the entropy term needs."""

NEEDS_DOUBTS = (
    'has no effect with loss.weights = "constant" and loss.targets = "labels"; set loss.weights = '
    '"label_probability" or loss.targets = "posterior"'
)
"""What the score file of the loss needs."""

NEEDS_SCORES = f'{NEEDS_WEIGHTS}, or loss.weights = "label_probability"'
"""What a score file needs."""

KIND = 'has no effect: it needs data.kind = "{}", and data.kind is "{{0.data.kind}}"; remove it'

IMAGES = Condition(
    lambda recipe: recipe.data.kind == "images", KIND.format("images"), ("data.kind",)
)
FEATURES = Condition(
    lambda recipe: recipe.data.kind == "features", KIND.format("features"), ("data.kind",)
)
TEXT = Condition(lambda recipe: recipe.data.kind == "text", KIND.format("text"), ("data.kind",))
TREES = Condition(lambda recipe: recipe.data.kind == "trees", KIND.format("trees"), ("data.kind",))
WORDS = Condition(
    lambda recipe: recipe.data.kind in {"text", "trees"},
    KIND.format('text" or "trees'),
    ("data.kind",),
)
OWN_WORDS = Condition(
    lambda recipe: encoder_of(recipe.model.name) is None,
    'has no effect with model.name = "{0.model.name}", which has its own vocabulary; remove it',
    ("model.name",),
)
TABLES_OF_SAMPLES = Condition(
    lambda recipe: recipe.data.kind != "features" or recipe.data.labels is not None,
    "has no effect: features are read as they are; it needs a dataset in data.labels",
    ("data.kind", "data.labels"),
)
NO_TEXT = Condition(
    lambda recipe: recipe.data.kind not in {"text", "trees"},
    'has no effect with data.kind = "{0.data.kind}"; name the column with data.text_column',
    ("data.kind",),
)
NO_FEATURES = Condition(
    lambda recipe: recipe.data.kind != "features",
    'has no effect with data.kind = "features": feature stores have no splits and hold their '
    "labels; remove it",
    ("data.kind",),
)
VALIDATION_DATASET = Condition(
    lambda recipe: isinstance(recipe.data.validation, str),
    "has no effect: it needs a dataset in data.validation, which is a fraction of data.train",
    ("data.validation",),
)
TEST_DATASET = Condition(
    lambda recipe: recipe.data.test is not None,
    "has no effect: it needs a dataset in data.test",
    ("data.test",),
)
FLIP_CROP = Condition(
    lambda recipe: recipe.data.augmentation == "flip_crop",
    'has no effect: it needs data.augmentation = "flip_crop", and data.augmentation is '
    '"{0.data.augmentation}"',
    ("data.augmentation",),
)
NOT_IN_MEMORY = Condition(
    lambda recipe: recipe.data.in_memory is not True,
    "has no effect with data.in_memory = true: images in memory are decoded once; remove one of "
    "the two",
    ("data.in_memory",),
)
BY_SCORES = Condition(
    lambda recipe: recipe.regulariser.weights == "scores", NEEDS_WEIGHTS, ("regulariser.weights",)
)
DOUBTS = Condition(
    lambda recipe: recipe.loss.doubts_labels, NEEDS_DOUBTS, ("loss.weights", "loss.targets")
)
CLIPS_SCORES = Condition(
    lambda recipe: recipe.regulariser.normalise in {"minmax", "zscore"},
    'has no effect with regulariser.normalise = "{0.regulariser.normalise}"; it applies to '
    '"minmax" and "zscore"',
    ("regulariser.normalise",),
)
SGD = Condition(
    lambda recipe: recipe.optimiser.name == "sgd",
    'has no effect with optimiser.name = "{0.optimiser.name}"; it applies to "sgd"',
    ("optimiser.name",),
)
STEPS = Condition(
    lambda recipe: recipe.schedule.name == "steps",
    'has no effect with schedule.name = "{0.schedule.name}"; it applies to "steps"',
    ("schedule.name",),
)
HEAD = Condition(
    lambda recipe: recipe.uncertainty.epochs > 0,
    "has no effect with uncertainty.epochs = 0, which trains no head; raise it, such as to 30",
    ("uncertainty.epochs",),
)
RANKING = Condition(
    lambda recipe: recipe.uncertainty.objective == "ranking",
    'has no effect with uncertainty.objective = "squared"; it applies to "ranking"',
    ("uncertainty.objective",),
)
BEST = Condition(
    lambda recipe: recipe.training.final == "best",
    'has no effect with training.final = "last"; it applies to "best"',
    ("training.final",),
)

CONDITIONS: Mapping[str, tuple[Condition, ...]] = {
    "data.split": (TABLES_OF_SAMPLES,),
    "data.validation_split": (NO_FEATURES, VALIDATION_DATASET),
    "data.test_split": (NO_FEATURES, TEST_DATASET),
    "data.image_column": (NO_TEXT, TABLES_OF_SAMPLES),
    "data.text_column": (WORDS,),
    "data.label_column": (TABLES_OF_SAMPLES,),
    "data.test_label_column": (NO_FEATURES, TEST_DATASET),
    "data.id_column": (TABLES_OF_SAMPLES,),
    "data.labels": (FEATURES,),
    "data.image_size": (IMAGES,),
    "data.max_pixels": (IMAGES,),
    "data.on_error": (IMAGES,),
    "data.augmentation": (IMAGES,),
    "data.crop_padding": (IMAGES, FLIP_CROP),
    "data.text_length": (TEXT,),
    "data.vocabulary_size": (WORDS, OWN_WORDS),
    "data.phrases": (TREES,),
    "data.in_memory": (IMAGES,),
    "data.workers": (IMAGES, NOT_IN_MEMORY),
    "loss.scores": (DOUBTS,),
    "loss.missing": (DOUBTS,),
    "regulariser.scores": (BY_SCORES,),
    "regulariser.column": (BY_SCORES,),
    "regulariser.normalise": (BY_SCORES,),
    "regulariser.winsorise": (BY_SCORES, CLIPS_SCORES),
    "regulariser.score_temperature": (BY_SCORES,),
    "regulariser.c": (BY_SCORES,),
    "regulariser.missing": (BY_SCORES,),
    "regulariser.unreliable": (BY_SCORES,),
    "optimiser.momentum": (SGD,),
    "optimiser.nesterov": (SGD,),
    "schedule.milestones": (STEPS,),
    "schedule.factor": (STEPS,),
    "training.channels_last": (IMAGES,),
    "training.best_by": (BEST,),
    "uncertainty.epochs": (FEATURES,),
    "uncertainty.objective": (HEAD,),
    "uncertainty.margin": (HEAD, RANKING),
    "uncertainty.leeway": (HEAD, RANKING),
    "uncertainty.hidden": (HEAD,),
    "uncertainty.batch_size": (HEAD,),
    "uncertainty.learning_rate": (HEAD,),
    "uncertainty.weight_decay": (HEAD,),
    "uncertainty.warmup": (HEAD,),
}
"""The conditions of every key that has any; all other keys always have an effect."""


def keys_without_effect(recipe: Recipe, keys: Iterable[str]) -> dict[str, Condition]:
    """Those of some keys that change nothing, each with the condition that is not met.

    Args:
        recipe: Recipe whose values are valid by themselves.
        keys: Keys with their table, as in "schedule.factor".

    Returns:
        In the order of the tables.
    """
    given = set(keys)
    return {
        key: unmet
        for key, conditions in CONDITIONS.items()
        if key in given and (unmet := next((c for c in conditions if not c.holds(recipe)), None))
    }


def messages_of(recipe: Recipe, keys: Mapping[str, Condition]) -> Iterator[str]:
    """One message with its remedy for each key without an effect."""
    for key, condition in keys.items():
        yield wrong_value(key, _value(recipe, key), condition.remedy.format(recipe))


def changed_keys(recipe: Recipe) -> list[str]:
    """The keys of `CONDITIONS` whose value is not their default."""
    return [key for key in CONDITIONS if _value(recipe, key) != _default(recipe, key)]


def without_defaults(values: Mapping[str, Any], recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe without the keys of `CONDITIONS` that have their default."""
    left_out = {*CONDITIONS} - {*changed_keys(recipe)}
    return {
        table: {key: value for key, value in part.items() if f"{table}.{key}" not in left_out}
        if isinstance(part, Mapping)
        else part
        for table, part in values.items()
    }


def with_defaults(recipe: Recipe, keys: Iterable[str]) -> Recipe:
    """The recipe with the defaults of some keys of `CONDITIONS`."""
    for key in keys:
        table, name = key.split(".")
        changed = replace(getattr(recipe, table), **{name: _default(recipe, key)})
        recipe = replace(recipe, **{table: changed})
    return recipe


def _value(recipe: Recipe, key: str) -> Any:  # noqa: ANN401 - any value of a recipe
    table, name = key.split(".")
    return getattr(getattr(recipe, table), name)


def _default(recipe: Recipe, key: str) -> Any:  # noqa: ANN401 - any value of a recipe
    table, name = key.split(".")
    (field,) = (field for field in fields(getattr(recipe, table)) if field.name == name)
    if field.default is MISSING:
        raise ValueError(f"{key} has no default")
    return field.default
