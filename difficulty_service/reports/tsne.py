"""Embeds samples in a plane by t-SNE, with openTSNE, which the extra `map` installs."""

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

EXTRA = "map"
MAX_POINTS = 20_000
"""Largest number of points; its time grows with them, to half a minute of one core."""

SEED = 0
PERPLEXITY = 30.0
EXAGGERATED_STEPS, STEPS = 100, 250
STEPS_BETWEEN_REPORTS = 10

METHOD = "t-SNE of the directions {}"
"""How samples are placed, in words; `map.method_of` says in which directions."""


def has_tsne() -> bool:
    """Whether openTSNE is installed."""
    return find_spec("openTSNE") is not None


def chosen_of(number: int) -> NDArray[np.int64]:
    """Up to MAX_POINTS places of so many samples, evenly spaced, ascending."""
    return np.linspace(0, number - 1, min(number, MAX_POINTS)).astype(np.int64)


def embed(
    places: NDArray[np.floating], on_progress: Callable[[float], None] = lambda _: None
) -> NDArray[np.float64]:
    """A plane in which neighbours stay neighbours, on one thread; the same places give the same.

    Args:
        places: Coordinates of at least four points. Shape (points, dimensions).
        on_progress: Called with the share of the steps that are done.

    Returns:
        Positions. Shape (points, 2).
    """
    from openTSNE import TSNE

    exaggerated = True

    def report(step: int, _error: float, _embedding: object) -> None:
        nonlocal exaggerated
        done = step if exaggerated else EXAGGERATED_STEPS + step
        exaggerated = exaggerated and step < EXAGGERATED_STEPS
        on_progress(done / (EXAGGERATED_STEPS + STEPS))

    embedding = TSNE(
        perplexity=min(PERPLEXITY, (len(places) - 1) / 3),
        initialization="pca",
        early_exaggeration_iter=EXAGGERATED_STEPS,
        n_iter=STEPS,
        callbacks=report,
        callbacks_every_iters=STEPS_BETWEEN_REPORTS,
        random_state=SEED,
        n_jobs=1,
    ).fit(places)
    return np.asarray(embedding, np.float64)
