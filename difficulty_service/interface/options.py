"""Checks of the values that a caller passes by name."""

import difflib
from collections.abc import Sequence

from difficulty_service.base.errors import DifficultyError, StatisticsError
from difficulty_service.gaussians.fit_options import FitOptions, Shrinkage
from difficulty_service.gaussians.gaussian import MATMUL_DTYPES
from difficulty_service.options import SHRINKAGE_RULES
from difficulty_service.scores.columns import SCORERS


def fit_options(shrinkage: Shrinkage, matmul_dtype: str) -> FitOptions:
    """The options of a fit, once their values are known to be valid.

    Raises:
        StatisticsError: A value is unknown.
    """
    if isinstance(shrinkage, str):
        require_known(shrinkage, SHRINKAGE_RULES, "shrinkage")
    elif not 0 <= shrinkage <= 1:
        raise StatisticsError(f"shrinkage {shrinkage} is outside 0 to 1", parameter="shrinkage")
    require_known(matmul_dtype, ("auto", *MATMUL_DTYPES), "matmul_dtype")
    return FitOptions(shrinkage, matmul_dtype)


def scorer_names(scorers: str | Sequence[str]) -> tuple[str, ...]:
    """The names of scorers, of which a single one may be given as it is.

    Raises:
        StatisticsError: A name is unknown.
    """
    names = (scorers,) if isinstance(scorers, str) else tuple(scorers)
    for name in names:
        require_known(name, tuple(SCORERS), "scorers")
    return names


def require_known(
    value: str,
    known: Sequence[str],
    parameter: str,
    error: type[DifficultyError] = StatisticsError,
) -> None:
    """Raises an error where a value is not among those known."""
    if value in known:
        return
    close = difflib.get_close_matches(str(value), known, n=1)
    suggestion = f"did you mean {close[0]!r}? Expected" if close else "expected"
    raise error(
        f"{parameter}={value!r} is unknown",
        f"{suggestion} {', '.join(map(repr, known[:-1]))} or {known[-1]!r}",
        parameter=parameter,
    )
