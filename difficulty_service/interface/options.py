"""What a caller passes by name, checked by the models of `difficulty_service.settings`.

The progress bar of an extraction, in a terminal or a notebook.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
from pydantic import ValidationError

from difficulty_service.base.errors import ConfigError, DatasetError, Setting
from difficulty_service.base.files import require_output_file
from difficulty_service.base.tables import WRITERS
from difficulty_service.base.wording import did_you_mean, explain_invalid
from difficulty_service.scoring.pipeline import ExtractProgress
from difficulty_service.settings.options import Options
from difficulty_service.settings.run import Run

Model = TypeVar("Model", bound=Options)


def require_names(options: Mapping[str, Any], kind: type, function: str) -> None:
    """Raises TypeError, as Python does, where an option is unknown."""
    known = get_type_hints(kind)
    for name in options:
        if name not in known:
            said = f"{function}() got an unexpected keyword argument {name!r}"
            raise TypeError("; ".join(filter(None, [said, did_you_mean(name, known).strip()])))


def read_options(model: type[Model], given: Mapping[str, Any]) -> Model:
    """Those of some options that a model has, checked."""
    with _named_in_errors():
        return model.among(_plain_values(given))


def run_of(given: Mapping[str, Any], **references: object) -> Run:
    """The run of options, and of what it refers to beside them.

    Raises:
        ConfigError: An option is out of bounds, or cannot be chosen with another.
    """
    with _named_in_errors():
        run = Run.of_options(_plain_values(given), **references)
    run.require_compatible()
    return run


@contextmanager
def _named_in_errors() -> Iterator[None]:
    """Raises ConfigError, which names the option, where a value is invalid."""
    try:
        yield
    except ValidationError as error:
        sentence = explain_invalid(error, lambda name, value: f"{name}={value!r}")
        raise ConfigError(sentence, parameter=str(error.errors()[0]["loc"][0])) from None


def _plain_values(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Values as JSON has them; a scorer may be given as it is, classes and tags as a list."""
    values: dict[str, Any] = {name: _plain(value) for name, value in given.items()}
    if isinstance(values.get("scorers"), str):
        values["scorers"] = [values["scorers"]]
    for name, separator in (("classes", ","), ("tags", ","), ("class_names", "\n")):
        listed = values.get(name)
        if listed is not None and not isinstance(listed, str):
            values[name] = separator.join(listed)
    return values


def _plain(value: object) -> object:
    """A value as JSON has it: a number of NumPy is one of Python, and a path a text."""
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, Path) else value


def require_results(
    out: str | Path | None, report: str | Path | None = None, **images: object
) -> None:
    """Raises DatasetError or ReportError where a table or a page cannot be written to a path.

    Args:
        **images: Keywords that name the images of the page, with what they are given.

    Raises:
        ConfigError: Images are named, but no page.
    """
    from difficulty_service.pages.html_page import require_page_file

    for name, value in images.items():
        if value and report is None:
            raise ConfigError(
                f"{name} changes nothing without a page",
                "name one as ",
                Setting("report"),
                parameter=name,
            )
    if out is not None:
        require_output_file(Path(out), WRITERS, DatasetError)
    if report is not None:
        require_page_file(Path(report))


@contextmanager
def progress_bar(*, shown: bool) -> Iterator[Callable[[ExtractProgress], None]]:
    """Gives a function that shows the progress of an extraction, on a bar if there is to be one."""
    from tqdm.auto import tqdm

    with tqdm(unit="", disable=not shown) as bar:

        def update(progress: ExtractProgress) -> None:
            if bar.total != progress.total:  # the first call; what is done was done by another run
                bar.unit = progress.noun
                bar.reset(total=progress.total)
                bar.initial = progress.done
            if progress.bad:
                bar.set_postfix(bad=progress.bad, refresh=False)
            bar.update(progress.done - bar.n)

        yield update
