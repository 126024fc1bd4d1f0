"""The running service in a test's own process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings


@contextmanager
def client_of(
    data_dir: Path,
    *,
    follow_redirects: bool = True,
    **settings: Any,  # noqa: ANN401 - whatever settings are
) -> Iterator[TestClient]:
    """A client on this machine of a running application, by default with the built-in backbone."""
    usual = {"data_dir": data_dir, "device": "cpu", "default_backbone": "builtin"}
    app = create_app(Settings(**usual | settings))
    with TestClient(app, base_url="http://localhost", follow_redirects=follow_redirects) as client:
        yield client
