"""`watch`: a dataset that changes in, its rounds of scores out."""

from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

from difficulty_service.command_options import WatchOptions
from difficulty_service.interface.options import (
    ImageOptions,
    extraction_options,
    progress_bar,
    read_options,
    require_names,
    scoring_options,
)
from difficulty_service.pipeline import Callbacks, ScoreRequest, plan_extraction
from difficulty_service.watching import FailedRound, Round
from difficulty_service.watching import watch as watch_dataset

USUAL = WatchOptions()


def watch(  # noqa: PLR0913 - one parameter for each option
    location: str | Path,
    *,
    out: str | Path,
    backbone: str | None = None,
    every: float = USUAL.every,
    settle: float = USUAL.settle,
    rounds: int | None = USUAL.rounds,
    progress: bool = False,
    **options: Unpack[ImageOptions],
) -> Iterator[Round | FailedRound]:
    """Scores a dataset, and again whenever files come or go, or somebody decided something.

    Only new images are read; all samples are scored anew. Decisions are those that are remembered
    beside `out`. Between two rounds the call waits, and it goes on for as long as the iterator is
    asked for the next one.

    Args:
        location: A path, URI or glob, as for `difficulty score`.
        out: Score file to write in each round. The features are kept beside it.
        backbone: Name of the backbone, as for `score_dataset`.
        every: Seconds between two looks at the dataset.
        settle: Seconds that a changed dataset must stay as it is before it is scored; one that
            changes all the time is scored after ten of these waits.
        rounds: Number of rounds after which to end, the first one included; None for never.
        progress: Whether to show a progress bar for each round.
        **options: See `ImageOptions`.

    Yields:
        `Round` with `scored`, `added` (what had no score before) and `seconds`; or `FailedRound`
        with the `error` of a dataset that could not be read or scored this time.

    Raises:
        ConfigError: An option is out of bounds.
        DifficultyError: As for `score_dataset`, in the first round.
    """
    require_names(options, ImageOptions, "watch")
    pace = read_options(WatchOptions, {"every": every, "settle": settle, "rounds": rounds})
    chosen = extraction_options({"backbone": backbone, **options})
    out = Path(out)
    request = plan_extraction(str(location), out.with_suffix(".features"), chosen)
    with progress_bar(shown=progress) as update:
        yield from watch_dataset(
            request, ScoreRequest(out, scoring_options(options)), pace, Callbacks(update)
        )
