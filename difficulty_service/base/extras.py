"""Optional packages: each is brought by an extra, which the error names where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from difficulty_service.base.errors import MissingPackage

DISTRIBUTION = "difficulty-service"


def pip_command(extra: str) -> str:
    """The command that installs an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


@contextmanager
def needs_extra(
    user: str, extra: str, *, or_else: str = "", parameter: str | None = None
) -> Iterator[None]:
    """Replaces the ImportError of a package; also a decorator.

    Args:
        user: What needs the package, as the subject of a sentence.
        extra: Extra that brings it.
        or_else: Rest of the remedy, after the command.
        parameter: Name of the keyword argument that caused the error, if there is one.

    Raises:
        MissingPackage: A package is not installed, or cannot be imported.
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        is_absent = bool(package) and find_spec(package) is None
        state = f"not installed ({package})" if is_absent else f"damaged ({error})"
        raise MissingPackage(
            f"{user} needs packages that are {state}",
            f"install them with: {pip_command(extra)}{or_else}",
            parameter=parameter,
        ) from error
