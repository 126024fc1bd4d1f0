"""The conditions of an address that lists images, and what of a job they are about."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ParamSpec, TypeVar, cast

import numpy as np
from fastapi import Depends, Query, Request
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool

from api.http.problems import Problem, invalid
from api.http.public_text import hide_paths, public_names
from api.jobs.failures import remedy_for_clients
from api.jobs.marks import marked_rows
from api.jobs.store import Job
from api.online.words import Closeness
from api.results.column_conditions import ColumnConditions, column_conditions
from api.results.conditions import ALIKE, CONDITIONS, REVIEWED, Beside, ImageQuery, row_of
from api.results.maps import MOST_ALIKE, layout_of
from api.results.reviews import open_review
from api.results.score_pages import BadQuery
from api.results.searches import go_on
from api.routes.callers import Caller
from api.services import Services
from difficulty_service.base.errors import BackboneError
from difficulty_service.cli.wrong_call import as_option
from difficulty_service.marks.mark_kinds import Mark

NO_WORDS = "the features of these samples share no space with words"
KNOWS_WORDS = "score the dataset again with a CLIP, such as clip-vit-b16"
ASK_OPERATOR = "ask the operator of the service for the weights that made the features"

P = ParamSpec("P")
T = TypeVar("T")
Text = Annotated[str, Query(max_length=1000)]


def read_columns(request: Request) -> ColumnConditions:
    """The conditions on columns beside the scores, whose names are those of the columns."""
    try:
        return column_conditions(request.query_params.multi_items())
    except BadQuery as error:
        raise as_problem(error) from None


ReadColumns = Annotated[ColumnConditions, Depends(read_columns)]


def taking(
    defaults: Mapping[str, str],
) -> Callable[[Callable[..., ImageQuery]], Callable[..., ImageQuery]]:
    """Gives a function a parameter for each of some conditions, which FastAPI reads."""
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=Annotated[str, Query(max_length=entry.longest, description=entry.sentence)],
        )
        for name, default in defaults.items()
        for entry in [CONDITIONS[name]]
    ]

    def give(function: Callable[..., ImageQuery]) -> Callable[..., ImageQuery]:
        signature = inspect.signature(function)
        columns, *own, _ = signature.parameters.values()
        function.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[columns, *parameters, *own]
        )
        return function

    return give


@taking(dict.fromkeys(CONDITIONS, ""))
def read_query(
    columns: ReadColumns, *, sort: Text = "", after: Text = "", **given: str
) -> ImageQuery:
    """The conditions in the address of a page."""
    given["text"] = given["text"].strip()
    query = ImageQuery(**given, sort=sort, after=after, columns=columns)
    return replace(query, sort=query.usual_sort) if sort in ("", ALIKE) else query


@taking({name: entry.listed for name, entry in CONDITIONS.items() if name != "label"})
def read_filter(columns: ReadColumns, **given: str) -> ImageQuery:
    """The conditions of a list of scores, which has an order and a class of its own."""
    given["text"] = given["text"].strip()
    values = {name: value or CONDITIONS[name].listed for name, value in given.items()}
    return ImageQuery(**values, sort="file", columns=columns)


Conditions = Annotated[ImageQuery, Depends(read_query)]
Filter = Annotated[ImageQuery, Depends(read_filter)]


def as_problem(error: BadQuery) -> Problem:
    """The answer to a condition that cannot be read."""
    return invalid(str(error), error.remedy or "correct this field", field=error.field)


def beside(caller: Caller, job: Job, query: ImageQuery) -> Beside:
    """What the conditions are about; only what they need is read."""
    services = caller.services
    samples = services.open_scores.get(job).samples
    alike: Sequence[int] | None = None
    if query.like and (row := row_of(query.like, samples)) is not None:
        others = services.similar_images.get(job, row, MOST_ALIKE)
        alike = None if others is None else [row, *others]
    return Beside(
        marked=_marked(caller, job, query.mark),
        drawn=services.maps.get(job, layout_of(query.area)) if query.area else None,
        alike=alike,
        closeness=_closeness(services, job, query.text) if query.text else None,
        columns=services.open_columns.get(job),
        go_on=go_on,
    )


async def searched(
    caller: Caller, query: ImageQuery, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Result of a function that finds the samples of a query, in a thread.

    One that takes long waits for the caller's turn, and ends with the connection.
    """
    if not query.takes_long:
        return await run_in_threadpool(function, *args, **kwargs)
    return await search(caller, function, *args, **kwargs)


async def search(caller: Caller, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Result of a function that looks through many samples, at the caller's turn."""
    searches = caller.services.searches
    return await searches.run(caller.request, caller.client, function, *args, **kwargs)


def _closeness(services: Services, job: Job, text: str) -> Closeness:
    """How close each image is to words; `BadQuery` where that cannot be known."""
    if not services.word_search.offers(job):
        raise BadQuery("text", NO_WORDS, KNOWS_WORDS)
    try:
        return services.word_search.closeness(job, text)
    except BackboneError as error:
        if services.rounds:  # of a command, on the machine of whoever looks
            raise BadQuery("text", error.problem, error.remedy_text(as_option)) from error
        names = public_names(services.settings)
        problem, remedy = hide_paths(error.problem, names), remedy_for_clients(error, names)
        raise BadQuery("text", problem, remedy or ASK_OPERATOR) from error


def _marked(caller: Caller, job: Job, wanted: str) -> Collection[int]:
    """Rows with the caller's marks that a filter names, as `ImageQuery.mark`."""
    if not wanted:
        return ()
    if wanted in REVIEWED:
        return cast("Collection[int]", _reviewed(caller, job, wanted))
    mark = Mark(wanted) if wanted in set(Mark) else None
    rows = marked_rows(caller.services.engine, caller.key.owner, job.id, mark)
    return cast("Collection[int]", rows)


def _reviewed(caller: Caller, job: Job, wanted: str) -> NDArray[np.int64]:
    """Rows that one of `REVIEWED` names."""
    if not caller.key.oversees(job.owner):
        raise BadQuery("mark", "the marks of others are for the owner of the job", "use another")
    services = caller.services
    review = open_review(services.engine, services.open_scores, job)
    if wanted == "tie":
        return review.merged.tied
    if wanted == "final":
        return review.finally_decided
    return np.setdiff1d(review.disagreed, review.finally_decided)
