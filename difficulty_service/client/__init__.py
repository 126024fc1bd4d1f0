"""The REST service from Python: `Client`.

client         what can be asked, and the request for it
connection     sends requests, repeats them, reads answers and errors
transfers      uploads and downloads of whole files
job_events     follows a job
score_filter   conditions of a list of samples
sample_bodies  single samples as the body of a request
mcp_server     offers some of it to assistants, over the Model Context Protocol
mcp_tools      what an assistant may ask
"""

from difficulty_service.base.errors import ServiceError
from difficulty_service.bodies.jobs import JobCreate, JobDataset
from difficulty_service.bodies.marks import Decision, MarkChange
from difficulty_service.client.client import Client
from difficulty_service.marks.mark_kinds import Mark

__all__ = [
    "Client",
    "Decision",
    "JobCreate",
    "JobDataset",
    "Mark",
    "MarkChange",
    "ServiceError",
]
