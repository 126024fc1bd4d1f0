"""A queue of jobs to test with, on SQLite and PostgreSQL."""

import pytest
from sqlalchemy import Engine

from tests.api.jobs.jobs_queue import Queue


@pytest.fixture
def queue(engine: Engine) -> Queue:
    """The jobs of an empty database."""
    return Queue(engine)
