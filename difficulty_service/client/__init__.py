"""The REST service from Python: `Client`, and `AsyncClient` with the same methods.

requests     every request, as data
steps        what an operation asks of a connection, and how it is repeated
operations   what takes several requests, as generators of steps
client       carries steps out, waiting or with await
mcp_server   offers some of it to assistants, over the Model Context Protocol
"""

from difficulty_service.base.errors import ServiceError
from difficulty_service.bodies.comparisons import DiffCreate, LeaksCreate, SelectCreate
from difficulty_service.bodies.jobs import JobCreate, JobDataset
from difficulty_service.bodies.marks import Decision, MarkChange
from difficulty_service.client.client import AsyncClient, Client
from difficulty_service.marks.mark_kinds import Mark

__all__ = [
    "AsyncClient",
    "Client",
    "Decision",
    "DiffCreate",
    "JobCreate",
    "JobDataset",
    "LeaksCreate",
    "Mark",
    "MarkChange",
    "SelectCreate",
    "ServiceError",
]
