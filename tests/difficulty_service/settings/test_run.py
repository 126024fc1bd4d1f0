"""A run: one description of what is computed, whichever front end builds it."""

from dataclasses import fields
from typing import Any

import pytest

from difficulty_service.base.errors import ConfigError
from difficulty_service.bodies.jobs import JobDataset, JobRequest
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.interface.options import run_of
from difficulty_service.settings import run as run_module
from difficulty_service.settings.options import Options
from difficulty_service.settings.run import Run

PHOTOS = JobDataset(root="photos")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"limit": 5, "flip": True, "seed": 3, "shrinkage": "oas", "scorers": ["rmd"]},
        {"text_column": "body", "label_column": "topic", "backbone": "builtin-text"},
        {"tags": "cat,dog", "tag_separator": ";", "id_column": "name"},
    ],
)
def test_python_and_a_job_build_the_same_run_of_the_same_options(options: dict[str, Any]) -> None:
    by_python, by_job = run_of(options), JobRequest(dataset=PHOTOS, **options).run

    assert by_python == by_job
    assert by_python.given == by_job.given
    assert by_python.scoring.names_scorers == by_job.scoring.names_scorers == ("scorers" in options)


def test_every_option_of_a_run_is_in_one_group() -> None:
    run = Run()
    groups = [
        value for field in fields(run) if isinstance(value := getattr(run, field.name), Options)
    ]
    names = [name for group in groups for name in type(group).model_fields]

    assert len(groups) == 5
    assert len(names) == len(set(names))


def test_samples_with_tags_are_read_without_labels() -> None:
    plain, tagged = run_of({"limit": 5}), run_of({"limit": 5, "tags": "auto"})

    assert DatasetOptions(**plain.reading) == DatasetOptions(limit=5)
    assert DatasetOptions(**tagged.reading) == DatasetOptions(limit=5, unlabelled=True)


def test_texts_are_in_the_column_called_text_where_none_is_named() -> None:
    assert run_of({"modality": "text"}).reading["text_column"] == "text"
    assert run_of({"text_column": "body"}).reading["text_column"] == "body"
    assert run_of({}).reading["text_column"] is None


def test_what_a_run_refers_to_clashes_with_options_and_its_absence_does_not() -> None:
    with pytest.raises(ConfigError, match="labels cannot be used with tags"):
        run_of({"tags": "auto"}, labels=["cat"])

    assert run_of({"tags": "auto"}, labels=None).chosen == {"tags"}


def test_python_asks_the_rules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[set[str]] = []
    monkeypatch.setattr(run_module, "find_clash", asked.append)

    run_of({"limit": 5}, marks="marks.csv", undo_round=None)

    assert asked == [{"limit", "marks"}]
