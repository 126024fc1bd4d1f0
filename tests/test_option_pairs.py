"""Every pair of options of scoring is refused by all front ends in the same words, or by none."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from cyclopts import App, CycloptsError
from pydantic import ValidationError

import difficulty_service as ds
from difficulty_service.base.errors import ConfigError
from difficulty_service.bodies.jobs import JobCreate
from difficulty_service.cli import create_app
from difficulty_service.cli.wrong_call import WrongCall, describe_wrong_call
from difficulty_service.settings.option_rules import RULES
from difficulty_service.settings.options import DatasetScoring

VALUES: Mapping[str, object] = {
    "format": "table",
    "split": "train",
    "image_column": "image",
    "label_column": "label",
    "id_column": "id",
    "text_column": "text",
    "class_names": "cat,dog",
    "unlabelled": True,
    "outlines": True,
    "limit": 5,
    "flip": True,
    "pixel_range": "0:4095",
    "bands": "4,3,2",
    "page": "middle",
    "corrupt": "fog:3",
    "augment_runs": 2,
    "augmentation": "flip_crop",
    "seed": 1,
    "on_error": "stop",
    "scorers": ["rmd"],
    "near_duplicates": 0.9,
    "shrinkage": "none",
    "matmul_dtype": "float64",
    "classes": "cat,dog",
    "clusters": 3,
    "tags": "auto",
    "tag_separator": ";",
    "backbone": "builtin",
}
"""Another value than the default for each option that all front ends have."""

PAIRS = [*combinations(VALUES, 2)]
Refusal = str | None


class Accepted(BaseException):
    """What would run the call."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends each call where its options are accepted."""

    def accept(*_: object, **__: object) -> None:
        raise Accepted

    for place in ("cli.score.run_score", "cli.score.score_tags_of", "interface.score.open_images"):
        module, _, name = f"difficulty_service.{place}".rpartition(".")
        monkeypatch.setattr(import_module(module), name, accept)


@cache
def shell() -> App:
    return create_app()


def refused_by_shell(options: Mapping[str, Any]) -> Refusal:
    words = ["score", "photos", "--out", "scores.parquet"]
    for name, value in options.items():
        texts = [] if value is True else [value[0] if isinstance(value, list) else str(value)]
        words += [f"--{name.replace('_', '-')}", *texts]
    try:
        command, bound, _ = shell().parse_args(words, print_error=False, exit_on_error=False)
        command(*bound.args, **bound.kwargs)
    except Accepted:
        return None
    except (WrongCall, CycloptsError) as error:
        said = describe_wrong_call(error)
        return re.sub(r"--([a-z-]+)", lambda found: found[1].replace("-", "_"), said)
    raise AssertionError("nothing ran")


def refused_by_python(options: Mapping[str, Any]) -> Refusal:
    try:
        ds.score_dataset("photos", progress=False, **options)
    except Accepted:
        return None
    except ConfigError as error:
        return error.problem
    raise AssertionError("nothing ran")


def refused_by_service(options: Mapping[str, Any]) -> Refusal:
    try:
        JobCreate.model_validate({"dataset": {"root": "pictures"}, **options})
    except ValidationError as error:
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ")
    return None


def test_every_option_of_a_job_is_in_some_pair() -> None:
    assert {*VALUES} >= {*DatasetScoring.model_fields}


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
def test_all_pairs_are_refused_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    refused = dict[tuple[str, str], str]()
    for pair in PAIRS:
        options = {name: VALUES[name] for name in pair}
        said = [each(options) for each in (refused_by_shell, refused_by_python, refused_by_service)]
        known = [each for each in said if each is not None]
        assert len(known) in {0, 3}, (pair, said)
        if known:
            # Where a field is refused by its own check, each front end says which one it is.
            shared = known[2]
            assert all(shared in each for each in known), (pair, said)
            refused[pair] = shared

    assert 20 < len(refused) < len(PAIRS) / 2, "neither all nor nothing"
    assert "tags are judged" in refused["label_column", "tags"]
    assert "makes the samples texts" in refused["text_column", "flip"]
    assert "both classes and clusters" in refused["classes", "clusters"]


@pytest.mark.parametrize("refused", [refused_by_shell, refused_by_python])
@pytest.mark.usefixtures("stopped")
def test_a_default_that_is_stated_means_nothing_else(
    refused: Callable[[Mapping[str, Any]], Refusal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert refused({"tags": "auto", "shrinkage": "auto"}) is None
    assert refused_by_service({"tags": "auto", "shrinkage": "auto"}) is None
    assert refused({"tags": "auto", "shrinkage": "none"}) is not None


@pytest.mark.parametrize("refused", [refused_by_shell, refused_by_python, refused_by_service])
@pytest.mark.usefixtures("stopped")
def test_a_kind_of_views_needs_their_number(
    refused: Callable[[Mapping[str, Any]], Refusal], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    alone = refused({"augmentation": "flip_crop"})

    assert alone is not None
    assert "augment_runs" in alone
    assert refused({"augmentation": "flip_crop", "augment_runs": 2}) is None


def test_a_rule_names_no_option_that_does_not_exist() -> None:
    beside = {"gaussians", "labels", "marks", "undo_round", "missing_boxes", "modality"}
    machine = {"weights", "features", "image_size", "preprocess", "max_pixels", "engine"}
    known = {*VALUES, *beside, *machine, "ray_address", "ray_actors"}

    named = {name for rule in RULES for name in (*rule.options, *rule.others)}

    assert named - known == {"json", "verbose", "fail_above"}
