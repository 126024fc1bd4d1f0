"""What asks the hub of Hugging Face, also where it cannot be reached.

The hub's client tries again for half a minute whatever it does not get, even on a machine without a
network, and for many minutes where a firewall drops what is sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager

CONNECTION_SECONDS = 10
"""Time in which a hub that can be reached accepts a connection."""


@contextmanager
def asking_hub() -> Iterator[None]:
    """Within the context, the hub's client takes what is cached from a hub out of reach.

    What is not cached is an error at once. A hub that is slow or busy is tried again as ever.

    Raises:
        ConnectionError: The hub cannot be reached, or broke off.
    """
    import httpx2
    from huggingface_hub import constants
    from huggingface_hub.errors import LocalEntryNotFoundError

    before = constants.HF_HUB_OFFLINE
    reason = None if before else _why_out_of_reach(constants.ENDPOINT)
    constants.HF_HUB_OFFLINE = before or reason is not None
    try:
        yield
    except LocalEntryNotFoundError as error:
        if reason is None:
            raise
        raise ConnectionError(f"{constants.ENDPOINT} cannot be reached: {reason}") from error
    except httpx2.HTTPError as error:
        if isinstance(error, OSError):  # an answer of the hub
            raise
        raise ConnectionError(_first_line(error)) from error
    finally:
        constants.HF_HUB_OFFLINE = before


def _why_out_of_reach(address: str) -> str | None:
    """Why nothing accepts a connection at an address; None where something does."""
    import httpx2
    from huggingface_hub import get_session

    try:
        get_session().head(address, timeout=CONNECTION_SECONDS)
    except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
        return _first_line(error)
    except httpx2.HTTPError:
        return None  # the client has words of its own for it
    return None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
