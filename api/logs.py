"""Structured logs: events with the ids of request and job, never secrets or contents."""

import logging
import re
import sys
from pathlib import Path
from typing import Any, TextIO

import structlog
from asgi_correlation_id import correlation_id
from structlog.typing import EventDict, Processor, WrappedLogger

from api.audit_log import AUDIT, open_audit_file
from api.settings import Settings
from difficulty_service.base.wording import without_control

HIDDEN = "[hidden]"
MALFORMED = "Invalid HTTP request received."
LONGEST_TEXT = 8000  # characters; a traceback fits, an image does not

SECRET_NAME = re.compile(r"authorization|cookie|passw|secret|token|api[-_]?key", re.IGNORECASE)

SECRETS = (
    # Keys of this service, wherever they occur.
    (re.compile(r"difficulty_[A-Za-z0-9_-]{20,}"), HIDDEN),
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s'\",]+"), rf"\1 {HIDDEN}"),
    # Passwords and access keys in URLs: before the host, and in the query.
    # A secret may contain slashes.
    (re.compile(r"(?<=://)[^\s'\"@]+@(?=[\w.\[-])"), f"{HIDDEN}@"),
    (re.compile(r"(?<=[\w/.:])\?[^\s'\"]*=[^\s'\"]*"), f"?{HIDDEN}"),
)
"""Patterns of what must not appear in a log, and their replacements."""


def set_up_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Sets the format and level of all logs of this process; to standard error by default."""
    stream = stream or sys.stderr
    is_text = are_for_people(settings, stream)
    clock = "%H:%M:%S" if stream.isatty() and is_text else "iso"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(allow=()),
        structlog.processors.TimeStamper(fmt=clock, utc=clock == "iso"),
        add_request_id,
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        hide_secrets,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.PositionalArgumentsFormatter(),
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    renderers: list[Processor] = [structlog.processors.JSONRenderer(default=repr)]
    if is_text:
        lines = structlog.dev.ConsoleRenderer(colors=False, sort_keys=False)
        renderers = [spell_out_control, lines]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    # These log every statement, request or step at their lower levels.
    for noisy in ("alembic", "asyncio", "httpcore2", "httpx2", "PIL", "sqlalchemy"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("uvicorn.error").addFilter(tells_more_than_malformed)
    logging.captureWarnings(capture=True)
    keep_audit_log(settings.audit_log, shared)


def are_for_people(settings: Settings, stream: TextIO) -> bool:
    """Whether logs are lines for people; otherwise they are JSON."""
    return settings.log_format == "text" or (settings.log_format == "auto" and stream.isatty())


def keep_audit_log(path: Path | None, processors: list[Processor]) -> None:
    """Has what is written to `AUDIT` go into a file, as JSON; without one, to the other logs."""
    audit = logging.getLogger(AUDIT)
    for before in audit.handlers:
        before.close()
    handler = None if path is None else open_audit_file(path)
    audit.handlers[:] = [] if handler is None else [handler]
    audit.propagate = handler is None
    audit.setLevel(logging.NOTSET if handler is None else logging.INFO)
    if handler is not None:
        renderer = structlog.processors.JSONRenderer(default=repr)
        handler.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=processors,
                processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            )
        )


def tells_more_than_malformed(record: logging.LogRecord) -> bool:
    """Drops uvicorn's line about each malformed request, which names neither client nor reason."""
    return record.msg != MALFORMED


def add_request_id(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Adds the id of the request that is being answered, if there is one."""
    identity = correlation_id.get()
    if identity is not None:
        event.setdefault("request_id", identity)
    return event


def hide_secrets(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Removes secrets and contents from an event, however deeply they are nested."""
    # Names that begin with _ belong to structlog.
    return {
        name: value if name.startswith("_") else _redacted(name, value)
        for name, value in event.items()
    }


def spell_out_control(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Spells out what would control a terminal: requests and datasets of strangers name things."""
    return {
        name: without_control(value) if isinstance(value, str) else value
        for name, value in event.items()
    }


def _redacted(name: str, value: object) -> object:
    if SECRET_NAME.search(name):
        return HIDDEN
    if isinstance(value, dict):
        return {str(key): _redacted(str(key), each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(name, each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return f"[{len(value)} bytes]"
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """The text with every secret replaced, and cut where it is very long."""
    for pattern, replacement in SECRETS:
        text = pattern.sub(replacement, text)
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}... [cut]"


def printable_settings(settings: Settings) -> dict[str, Any]:
    """The settings by name, with secrets hidden."""
    values = settings.model_dump(mode="json", exclude={"database_url"})
    values["database_url"] = settings.resolved_database_url.get_secret_value()
    return {name: _redacted(name, value) for name, value in values.items()}
