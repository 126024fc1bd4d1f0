"""What the requests of the application share, opened at its start and closed at its end."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial

from fastapi import Request
from sqlalchemy import Engine

from api.explored import Rounds
from api.http.event_streams import EventStreams
from api.http.fair_queue import FairQueue
from api.http.needed_services import ProblemPage
from api.http.problems import Problem
from api.jobs.backbones import settle_default_backbone
from api.jobs.estimate import Previews, preview_datasets
from api.jobs.store import Job
from api.metrics import Metrics
from api.online.process import ScoringModels, ScoringProcess
from api.online.words import WordSearch
from api.results.attached_tables import AttachedTables
from api.results.comparisons import Comparisons
from api.results.maps import Maps, SimilarImages
from api.results.open_columns import AttachedColumns, ColumnFiles, ExplorerColumns, OpenColumns
from api.results.saved_views import ExplorerViews, SavedViews, StoredViews, views_file
from api.results.score_columns import OpenScores
from api.results.searches import Searches
from api.results.thumbnails import AT_ONCE, Thumbnails
from api.results.tsne_maps import TsneMaps
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import connect, migrate
from api.storage.identity import require_own_artifacts
from api.storage.key_uses import KeyUses
from api.storage.space import keep_reserve
from api.uploads.checking import UploadChecks
from difficulty_service.base.apart import Apart, Limits, call_apart
from difficulty_service.base.threads import num_workers
from difficulty_service.images.pixels import Pixels

COUNTING_BYTES = 4 << 30  # memory of the process that counts samples
KEPT_BYTES = 256 << 20  # memory above which the process that counts samples is replaced
MAX_PENDING_ESTIMATES = 4  # requests of one key, at once
MAX_PENDING_MARKS = 2  # requests of one key that read, or write, all marks of a job, at once
MAX_PENDING_TABLES = 2  # requests of one key that send columns, at once
EVERYWHERE = ("auto", "cpu")  # devices that every machine has


@dataclass(frozen=True)
class Queues:
    """The queues in which clients have turns, each for work of one purpose."""

    thumbnails: FairQueue  # to make small pictures
    scoring: FairQueue  # to score single samples
    estimates: FairQueue  # to say how a dataset would be read
    tables: FairQueue  # to join columns of a table
    marking: FairQueue  # to mark many samples
    marks: FairQueue  # to read or write all marks of a job


@dataclass(frozen=True)
class ServiceInputs:
    """What the services are opened with."""

    settings: Settings  # what the operator has chosen; the default backbone may be open
    metrics: Metrics  # counts the requests, which begins before the services are open
    problem_page: ProblemPage  # writes a problem for a browser that asks for a page
    rounds: Rounds | None  # of a score file that is explored; None for a service
    is_stopping: Callable[[], bool]  # whether long answers should end, because the server does

    def awaits_features(self, job_id: str) -> bool:
        """Whether what is made of the features of a job comes later: only in an explorer."""
        return self.rounds is not None and self.rounds.awaits_features(job_id)


@dataclass(frozen=True)
class Services:
    """All that requests share, for as long as the application runs."""

    settings: Settings  # what the operator has chosen, with the default backbone settled
    engine: Engine  # the database
    artifacts: Artifacts  # the files of jobs
    queues: Queues  # where clients wait for their turn
    event_streams: EventStreams  # the open streams of events
    metrics: Metrics  # what is counted for GET /metrics
    key_uses: KeyUses  # the keys that were used since it was last written to the database
    problem_page: ProblemPage  # writes a problem for a browser that asks for a page
    rounds: Rounds | None  # of a score file that is explored; None for a service
    is_stopping: Callable[[], bool]  # whether long answers should end, because the server does
    open_scores: OpenScores  # score files that stay in memory
    open_columns: OpenColumns  # columns beside the scores that stay in memory
    attached_tables: AttachedTables  # joins tables to the samples of a job, in a process of its own
    saved_views: SavedViews  # lists of samples that were given a name
    searches: Searches  # finds samples by conditions that take long
    maps: Maps  # maps of the samples that are stored
    similar_images: SimilarImages  # finds the samples that look most like one
    tsne_maps: TsneMaps  # makes t-SNE maps, one at a time
    comparisons: Comparisons  # compares jobs, one at a time
    thumbnails: Thumbnails  # makes small pictures, in processes of their own
    scoring_process: ScoringProcess  # scores single samples, in a process of its own
    scoring_models: ScoringModels  # Gaussians that single samples are scored against
    word_search: WordSearch  # finds samples by words
    upload_checks: UploadChecks  # checks files that were uploaded, in processes of their own
    previews: Previews  # says how a dataset would be read, in a process of its own


def services_of(request: Request) -> Services:
    """The services of the application that a request is for."""
    services: Services = request.app.state.services
    return services


@contextmanager
def open_services(inputs: ServiceInputs) -> Iterator[Services]:
    """Upgrades the tables and opens everything; closes it in reverse, also after an error."""
    with ExitStack() as stack:
        engine = connect(inputs.settings.resolved_database_url.get_secret_value())
        stack.callback(engine.dispose)
        migrate(engine)
        artifacts = open_artifacts(inputs.settings.artifact_root)
        if inputs.settings.takes_jobs:
            keep_reserve(engine)
            require_own_artifacts(engine, artifacts)
        settings = settle_default_backbone(inputs.settings)
        if settings.device not in EVERYWHERE:
            # In another process, since it takes torch.
            call_apart(_choose_device, settings.sample_device)
        yield _open_all(inputs, settings, engine, artifacts, stack)


def _open_all(
    inputs: ServiceInputs,
    settings: Settings,
    engine: Engine,
    artifacts: Artifacts,
    stack: ExitStack,
) -> Services:
    """The services of a database that is ready. What is opened first is closed last."""
    scorings_at_once = num_workers() + 2
    open_scores = OpenScores(settings, artifacts)
    maps = Maps(artifacts, open_scores)
    similar_images = SimilarImages(settings, artifacts, inputs.awaits_features)
    counting = Limits(COUNTING_BYTES, KEPT_BYTES)
    previews = stack.enter_context(closing(Apart(preview_datasets, limits=counting)))
    attached_tables = stack.enter_context(
        closing(AttachedTables(engine, settings, artifacts, open_scores))
    )
    upload_checks = stack.enter_context(closing(UploadChecks(settings.upload_check_seconds)))
    thumbnails = stack.enter_context(
        closing(Thumbnails(settings, engine, partial(_pixels_of, open_scores)))
    )
    scoring_process = stack.enter_context(closing(ScoringProcess(settings, scorings_at_once)))
    comparisons = stack.enter_context(closing(Comparisons(engine, settings, artifacts)))
    tsne_maps = stack.enter_context(
        closing(TsneMaps(engine, settings, artifacts, maps, similar_images, open_scores))
    )
    column_files: ColumnFiles = ExplorerColumns(settings)
    saved_views: SavedViews = ExplorerViews(views_file(settings))
    if settings.takes_jobs:
        column_files = AttachedColumns(engine, settings, artifacts)
        saved_views = StoredViews(engine)
    weights = None if inputs.rounds is None else inputs.rounds.explored.weights
    return Services(
        settings=settings,
        engine=engine,
        artifacts=artifacts,
        queues=_open_queues(settings, scorings_at_once),
        event_streams=EventStreams(settings.max_event_streams),
        metrics=inputs.metrics,
        key_uses=KeyUses(),
        problem_page=inputs.problem_page,
        rounds=inputs.rounds,
        is_stopping=inputs.is_stopping,
        open_scores=open_scores,
        open_columns=OpenColumns(column_files, open_scores),
        attached_tables=attached_tables,
        saved_views=saved_views,
        searches=Searches(settings.filter_seconds, inputs.is_stopping),
        maps=maps,
        similar_images=similar_images,
        tsne_maps=tsne_maps,
        comparisons=comparisons,
        thumbnails=thumbnails,
        scoring_process=scoring_process,
        scoring_models=ScoringModels(artifacts, scoring_process),
        word_search=WordSearch(artifacts, scoring_process, weights, inputs.awaits_features),
        upload_checks=upload_checks,
        previews=previews,
    )


def _open_queues(settings: Settings, scorings_at_once: int) -> Queues:
    return Queues(
        thumbnails=FairQueue("thumbnails", AT_ONCE, settings.max_pending_thumbnails),
        scoring=FairQueue(
            "requests to score samples", scorings_at_once, settings.max_pending_scorings
        ),
        estimates=FairQueue("estimates", 1, MAX_PENDING_ESTIMATES),
        tables=FairQueue("tables of columns", 1, MAX_PENDING_TABLES),
        marking=FairQueue("requests to mark many samples", 1, MAX_PENDING_MARKS),
        marks=FairQueue("requests for all marks of a job", 1, MAX_PENDING_MARKS),
    )


def _pixels_of(open_scores: OpenScores, job: Job) -> Pixels | None:
    """What became black and white of the images of a job that have more than eight bits.

    None where the files of the job are gone, whose thumbnails may still be made.
    """
    try:
        return Pixels.of(open_scores.get(job).provenance.preprocessing)
    except Problem:
        return None


def _choose_device(name: str) -> None:
    from difficulty_service.backbones.backbone import choose_device

    choose_device(name)
