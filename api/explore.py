"""The pages on a score file without a service: for people who only use the command line."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pydantic import SecretStr

from api.background import Wait, in_background
from api.explored import ExploredFile, Rounds, add_round, why_not_again
from api.imported import add_features, has_features_of, remove_features_files, root_and_path
from api.jobs.kept_features import knows_words
from api.jobs.store import Job
from api.results.joined_columns import joined_file, write_joined
from api.server import run_server
from api.settings import SQLITE_FILE, Settings
from api.storage.artifacts import open_artifacts
from difficulty_service.base.apart import call_apart
from difficulty_service.base.errors import ConfigError, DifficultyError, Setting
from difficulty_service.datasets.sample import Dataset
from difficulty_service.features.description import is_store
from difficulty_service.marks.review_folder import ReviewFolder
from difficulty_service.scores.file import ScoreFile, read_scores
from difficulty_service.scores.samples import columns_to_read
from difficulty_service.scores.score_columns import require_columns


@dataclass(frozen=True)
class ExploreOptions:
    """A score file and what its pages show besides.

    Attributes:
        images: Location of the dataset; None for the one that the file names.
        features: Folder of the features; None for the one beside the file, if there is one.
        columns: Tables with columns, as `TableSource.parse` reads them.
        weights: File of the CLIP that made the features; None for that of the hub.
    """

    scores: Path
    images: str | None = None
    features: Path | None = None
    columns: Sequence[str] = ()
    weights: Path | None = None


def explore(
    options: ExploreOptions,
    port: int,
    tell: Callable[[str], None],
    on_listening: Callable[[str], None],
) -> None:
    """Serves the pages of one score file on this machine, until SIGTERM or SIGINT.

    Rounds of review, views and thumbnails are kept in a folder beside the score file,
    `NAME.explorer`, and marks in `NAME.marks.csv`. `tell` is called with sentences about what
    cannot be shown, `on_listening` with the address of the first page.

    Raises:
        ScoreFileError: The score file cannot be read.
        ConfigError: The port is in use, the folder cannot be made, or the given folder has no
            features of these images, or a weights file is missing or not needed.
        FeatureStoreError: The features in the given folder are incomplete or damaged.
        StatisticsError: No Gaussian can be fitted to them.
        CleaningError: The marks beside the score file cannot be read.
        ReportError: The columns cannot be joined to the scores.
    """
    beside = options.scores.with_suffix(".features")
    found = options.features or (beside if is_store(beside) else None)
    # Reading the file takes memory that a process would not give back as a whole.
    explored, job, obstacle, notes = call_apart(_prepare, replace(options, features=found), port)
    for note in notes:
        tell(note)
    rounds = Rounds(explored, job.id, obstacle)
    if options.features is not None:
        add_features(explored.settings.artifact_root, job, options.features)
    elif found is not None and options.weights is not None:
        add_features_beside(rounds, job, found, tell)
    if options.weights is not None:
        require_use_of(options.weights, explored, job)
    # What was named has been read by now, since an error in it ends the command.
    waits = options.features is not None or options.weights is not None
    adding = nullcontext() if found is None or waits else adding_features(rounds, job, found, tell)
    with adding:
        run_server(explored.settings, 0, lambda url: on_listening(f"{url}/jobs/{job.id}"), rounds)


@contextmanager
def adding_features(
    rounds: Rounds, job: Job, folder: Path, tell: Callable[[str], None]
) -> Iterator[None]:
    """Makes the map and the vectors of a job's images within the context, if need be."""
    root = rounds.explored.settings.artifact_root
    try:
        is_done = has_features_of(root, job, folder)
    except DifficultyError:
        is_done = False  # the reason is told when they are added
    if is_done:
        yield
        return
    # Otherwise pages would show, and remember, what was made of other features.
    remove_features_files(open_artifacts(root), job)
    rounds.awaited = job.id

    def add(wait: Wait) -> None:
        def tell_unless_ended(note: str) -> None:
            if not wait(0):  # the end also ends the process that makes the files
                tell(note)

        try:
            add_features_beside(rounds, job, folder, tell_unless_ended)
        finally:
            rounds.awaited = ""

    with in_background("features", add, longest=0):
        yield


def add_features_beside(
    rounds: Rounds, job: Job, folder: Path, tell: Callable[[str], None]
) -> None:
    """Adds the features that were found beside a score file, or tells why they cannot be used."""
    try:
        add_features(rounds.explored.settings.artifact_root, job, folder)
    except DifficultyError as error:
        rounds.obstacle = "the features beside it cannot be used"
        tell(f"There is no map, and no images like another one are shown: {error}")


def require_use_of(weights: Path, explored: ExploredFile, job: Job) -> None:
    """Refuses a weights file that is missing, or that no search by words would read."""
    if not weights.is_file():
        raise ConfigError(
            f"there is no file {weights}", "name the file of the CLIP", parameter="weights"
        )
    artifacts = open_artifacts(explored.settings.artifact_root)
    if not knows_words(artifacts, job):
        raise ConfigError(
            f"{weights} is for the search by words, and there are no features that share a space "
            "with words",
            "leave it out, or score with a CLIP, such as ",
            Setting("backbone", "clip-vit-b16"),
            parameter="weights",
        )


def _prepare(options: ExploreOptions, port: int) -> tuple[ExploredFile, Job, str, Sequence[str]]:
    """The explored file, the job that it becomes, and why it cannot be scored again, if so.

    Last, sentences about marks and columns. Errors are those of `explore`.
    """
    scores = options.scores
    content = read_scores(scores)
    needed = columns_to_read(content.table.column_names)
    require_columns(needed, content.table.column_names, str(scores))
    location = options.images or content.provenance.dataset or ""
    settings = explorer_settings(scores, location, port)
    try:
        settings.data_dir.mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{settings.data_dir} cannot be made, where marks are kept: {error.strerror}",
            "copy the score file to a folder that you may write to",
            parameter="scores",
        ) from None
    explored = ExploredFile(scores, location, settings, options.features, options.weights)
    warnings = ReviewFolder(scores).remembered().warnings  # before the file is written anew
    job = add_round(explored, content)
    notes = (*warnings, *join_columns(explored, content, options))
    return explored, job, why_not_again(content.provenance, options.features), notes


def join_columns(
    explored: ExploredFile, content: ScoreFile, options: ExploreOptions
) -> Sequence[str]:
    """Keeps the columns of tables for all rounds, in place of others.

    Gives sentences about what does not match or cannot be shown.

    Raises:
        ReportError: They cannot be joined to the scores.
    """
    from difficulty_service.pages.stored_images import open_images
    from difficulty_service.reports.joined_tables import JoinedDataset, TableSource, join_tables

    path = joined_file(explored.settings)
    path.unlink(missing_ok=True)
    if not options.columns:
        return ()
    scored = content.table["sample_id"].to_pylist()
    # Rounds before this one have the samples that were dropped since.
    others = set(ReviewFolder(explored.scores).remembered().samples).difference(scored)
    ids = pa.array([*scored, *sorted(others)], pa.string())

    def find() -> Dataset:
        return open_images(content.provenance, scored, options.images).dataset

    recorded = content.provenance.dataset_options
    id_column = None if recorded is None else recorded.id_column
    dataset = JoinedDataset(find, id_column, content.provenance.fingerprint)
    joined = join_tables(ids, list(map(TableSource.parse, options.columns)), dataset)
    write_joined(path, ids, joined.columns)
    return joined.notes


def explorer_settings(scores: Path, location: str, port: int) -> Settings:
    """Settings of a server for one dataset, which listens on this machine only."""
    folder = scores.with_suffix(".explorer").absolute()
    root, _ = root_and_path(location)
    return Settings(
        data_dir=folder,
        database_url=SecretStr(f"sqlite:///{folder / SQLITE_FILE}"),
        artifacts=str(folder / "artifacts"),
        roots={root[0]: root[1]},
        host="127.0.0.1",
        allowed_hosts=("127.0.0.1", "localhost"),
        port=port,
        rate_limit="100000/minute",
        takes_jobs=False,
        log_format="text",
        log_level="error",
    )
