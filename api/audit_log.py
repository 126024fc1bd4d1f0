"""The audit log: who changed what, and when; never secrets or contents.

A change has been made when its line is written, so that a line that cannot be written, as on a full
disk, refuses nothing: it goes to the other logs, as an error.
"""

import errno
import logging
import os
from io import TextIOWrapper
from logging.handlers import WatchedFileHandler
from pathlib import Path

import structlog

from difficulty_service.base.errors import ConfigError

AUDIT = "audit"
"""Name of the logger."""

MODE = 0o640  # of the file: it names people and addresses


class AuditFile(WatchedFileHandler):
    """Appends each line in one call, whole also where several processes write.

    The file is opened anew when it was moved away.
    """

    _is_cut = False  # whether the last line lacks its end

    def _open(self) -> TextIOWrapper:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return TextIOWrapper(os.fdopen(os.open(self.baseFilename, flags, MODE), "ab"), "utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, or logs that it could not."""
        line = ""
        try:
            line = self.format(record)
            self.reopenIfNeeded()
            if self.stream is None:  # it could not be opened anew the last time
                self.stream = self._open()
            data = ("\n" if self._is_cut else "").encode() + f"{line}\n".encode()
            written = os.write(self.stream.fileno(), data)
            self._is_cut = written < len(data)
            if self._is_cut:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # noqa: TRY301
        except (OSError, ValueError) as error:
            log = structlog.get_logger()
            log.error(  # noqa: TRY400 - the reason says all
                "audit-log-unwritable", file=self.baseFilename, reason=str(error), line=line
            )


def open_audit_file(path: Path) -> AuditFile:
    """Opens the file, which is made if there is none.

    Raises:
        ConfigError: It cannot be written to.
    """
    try:
        return AuditFile(path)
    except OSError as error:
        raise ConfigError(
            f"the audit log cannot be written: {error}",
            "name a file in a folder that is there in DIFFICULTY_AUDIT_LOG",
            parameter="audit_log",
        ) from error
