"""The progress bar of an extraction, in a terminal or a notebook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from difficulty_service.pipeline import ExtractProgress


@contextmanager
def progress_bar(
    unit: str = "image", *, shown: bool
) -> Iterator[Callable[[ExtractProgress], None]]:
    """Gives a function that shows the progress of an extraction.

    Args:
        unit: What the samples are in a word.
        shown: Whether there is a bar at all.
    """
    from tqdm.auto import tqdm

    with tqdm(unit=unit, disable=not shown) as bar:

        def update(progress: ExtractProgress) -> None:
            if bar.total != progress.total:  # the first call; what is done was done by another run
                bar.reset(total=progress.total)
                bar.initial = progress.done
            if progress.bad:
                bar.set_postfix(bad=progress.bad, refresh=False)
            bar.update(progress.done - bar.n)

        yield update
