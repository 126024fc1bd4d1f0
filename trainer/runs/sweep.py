"""Sweeps: one run of a recipe for every combination of values of some of its keys."""

import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import ConfigError, Setting, TrainingError
from difficulty_service.scores.file import read_score_schema
from trainer import run_folder
from trainer.config import EqualWeights, Recipe
from trainer.recipes.file import read_recipe
from trainer.recipes.overrides import NEEDS_SCORES, used_scores, value_of, with_scores
from trainer.runs.train import fixed_part
from trainer.training.state import require_same_run

ALPHA = "regulariser.alpha"
LONGEST_NAME = 120
"""Characters of a folder's name that every file system takes."""

Combination = Mapping[str, Any]
"""The value of every swept key."""


@dataclass(frozen=True)
class SweptRun:
    """One run of a sweep."""

    label: str
    folder: Path
    recipe: Recipe

    @property
    def num_started(self) -> int:
        """Number of the recipe's seeds that were started, finished or not."""
        return self._count(run_folder.RECIPE)

    @property
    def num_finished(self) -> int:
        """Number of the recipe's seeds that are finished."""
        return self._count(run_folder.METRICS)

    def _count(self, file: str) -> int:
        seeds = self.recipe.training.seeds
        return sum((run_folder.seed_folder(self.folder, seed) / file).exists() for seed in seeds)


@dataclass(frozen=True)
class SweepRequest:
    """A sweep to plan.

    Attributes:
        recipe: TOML file, or the name of a recipe that ships with the package.
        over: Keys with their values, such as "regulariser.alpha=0,0.1,0.3".
        settings: Changes of the recipe for all runs, such as "training.epochs=30".
        scores: Score file of the runs with weights by scores; None is the recipe's.
        out: Folder that holds the folders of the runs; None is runs/NAME-sweep.
        resume: Whether the folders may hold runs, which are then finished.
    """

    recipe: str
    over: Sequence[str]
    settings: Sequence[str] = ()
    scores: Path | None = None
    out: Path | None = None
    resume: bool = False


def plan_sweep(request: SweepRequest) -> list[SweptRun]:
    """Plans the runs of a sweep, in the order of the values, of which the last change fastest.

    All are checked. A run with alpha 0 has no entropy term, so it has no weights either, and what
    the recipe says about them is left out; combinations that differ in nothing else are one run.
    """
    axes = _axes(request)
    combinations = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    recipes: dict[str, Recipe] = {}
    errors = []
    for combination in combinations:
        try:
            recipes.setdefault(_label(combination), _read(request, combination))
        except ConfigError as error:
            errors.append(error)
    if errors:
        first = errors[0]
        raise ConfigError(
            f"{len(errors)} of {len(combinations)} combinations are invalid, the first: "
            f"{first.problem}",
            *first.remedy,
            parameter="over",
        )
    _check_scores(request, list(recipes.values()))
    runs = [_run(request, label, recipe) for label, recipe in recipes.items()]
    _check_started(runs, request)
    return runs


def sweep_folder(request: SweepRequest, recipe_name: str) -> Path:
    """The folder that holds the folders of the runs."""
    return request.out or Path("runs") / f"{recipe_name}-sweep"


def _axes(request: SweepRequest) -> dict[str, list[Any]]:
    """The values of each key, in the order of the request."""
    axes: dict[str, list[Any]] = {}
    fixed = {setting.partition("=")[0].strip() for setting in request.settings}
    for text in request.over:
        key, sign, values = (part.strip() for part in text.partition("="))
        if not sign or not re.fullmatch(r"\w+\.\w+", key):
            raise ConfigError(
                f"{text!r} names no values of a key of a table",
                f"give TABLE.KEY=VALUE,VALUE,..., such as {ALPHA}=0,0.1,0.3",
                parameter="over",
            )
        if key in axes or key in fixed:
            other = "swept twice" if key in axes else "both set and swept"
            raise ConfigError(f"{key} is {other}", "name each key once", parameter="over")
        axes[key] = _values(key, values)
    if not axes:
        raise ConfigError(
            "a sweep without a key", "add ", Setting("over", f"{ALPHA}=0,0.1,0.3"), parameter="over"
        )
    return axes


def _values(key: str, text: str) -> list[Any]:
    """Values separated by commas: a TOML list, or else each is TOML or plain text."""
    try:
        values = tomllib.loads(f"values = [{text}]")["values"]
    except tomllib.TOMLDecodeError:
        values = [value_of(part.strip()) for part in text.split(",")]
    repeated = [value for number, value in enumerate(values) if value in values[:number]]
    if not values or None in values or "" in values or repeated:
        problem = f"{_shown(repeated[0])} twice" if repeated else "no value, or an empty one"
        raise ConfigError(f"{key} = {text!r}: {problem}", "name each value once", parameter="over")
    return values


def _read(request: SweepRequest, combination: Combination) -> Recipe:
    """The recipe of one combination."""
    changes = [f"{key}={json.dumps(value, default=str)}" for key, value in combination.items()]
    overrides = [*request.settings, *changes]
    recipe = read_recipe(request.recipe, overrides, in_sweep=ALPHA in combination)
    if _is_plain(combination):
        recipe = recipe.model_copy(update={"regulariser": EqualWeights()})
    if request.scores is not None and used_scores(recipe):
        recipe = with_scores(recipe, str(request.scores))
    return recipe


def _is_plain(combination: Combination) -> bool:
    """Whether a combination switches the entropy term off."""
    return combination.get(ALPHA) == 0 and not isinstance(combination[ALPHA], bool)


def _label(combination: Combination) -> str:
    effective = {
        key: value
        for key, value in combination.items()
        if key == ALPHA or not _is_plain(combination) or not key.startswith("regulariser.")
    }
    return ", ".join(f"{key}={_shown(value)}" for key, value in effective.items())


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return json.dumps(value, default=str)


def _run(request: SweepRequest, label: str, recipe: Recipe) -> SweptRun:
    plain = label.replace(", ", ",")
    name = re.sub(r"[^\w.=,+\[\]-]+", "-", plain)
    if name != plain or len(name) > LONGEST_NAME:
        # What was replaced or cut off must not make two folders one.
        name = f"{name[:LONGEST_NAME]}-{hashlib.sha256(label.encode()).hexdigest()[:8]}"
    folder = sweep_folder(request, recipe.name) / name
    named = recipe.model_copy(update={"name": f"{recipe.name}, {label}"})
    return SweptRun(label, folder, named)


def _check_scores(request: SweepRequest, recipes: Sequence[Recipe]) -> None:
    used = [scores for recipe in recipes for scores in used_scores(recipe)]
    if request.scores is not None and not used:
        raise ConfigError(f"{request.scores} {NEEDS_SCORES}", parameter="scores")
    if None in used:
        raise ConfigError(
            "a recipe uses scores, but no score file is named",
            "add ",
            Setting("scores", "scores.parquet"),
            parameter="scores",
        )
    for path in sorted({path for path in used if path is not None}):
        read_score_schema(Path(path))


def _check_started(runs: Sequence[SweptRun], request: SweepRequest) -> None:
    """Refuses runs that exist, and on resuming those that exist with another recipe."""
    started = [run for run in runs if run.num_started]
    if started and not request.resume:
        raise TrainingError(
            f"{started[0].folder} already holds a run, one of {len(started)} of this sweep",
            "keep the finished runs and finish the others with ",
            Setting("resume", value=True),
            ", or use another ",
            Setting("out"),
            parameter="out",
        )
    for run in started:
        current = {"recipe": fixed_part(run.recipe)}
        for seed in run.recipe.training.seeds:
            folder = run_folder.seed_folder(run.folder, seed)
            path = folder / run_folder.RECIPE
            if path.exists():
                identity = run_folder.read_run(folder)["identity"]
                require_same_run(path, {"recipe": identity["recipe"]}, current)
