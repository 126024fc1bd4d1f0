"""The commands `difficulty keys …`: who may use the service, for how long, and which roots."""

import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import Parameter

from api.commands import read_settings
from difficulty_service.base.extras import needs_extra

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from api.settings import Settings
    from api.storage.keys import Key, Terms

KeyId = Annotated[str, Parameter("ID")]
UNITS = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
LONGEST = 100 * 366 * 86400.0  # seconds
NEVER = "never"
ALL = "*"
YES = ("", "y", "Y", "yes")


@needs_extra('"difficulty keys create"', "serve")
def create(
    name: str, /, *, scopes: str = "write", expires: str | None = None, roots: str | None = None
) -> None:
    """Creates an API key and prints its secret, once.

    The first key takes over the jobs, uploads and marks from before there were keys.

    Args:
        name: Purpose of the key, for `difficulty keys list`.
        scopes: read, write (also submit, upload, delete), read-all (all jobs, and metrics), admin
            (also cancel and delete them); comma-separated.
        expires: End of validity: 90d (also m, h, w), or the start of a UTC date such as
            2027-01-31; default: never.
        roots: Names of the roots it may use, comma-separated; an empty text leaves only its own
            uploads; default: all.
    """
    from api.storage.keys import Terms, count_owned, create_key
    from difficulty_service.cli.console import err

    names = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    settings = read_settings()

    def act(engine: "Engine") -> "Key":
        terms = _change(engine, settings, expires, roots)(Terms())
        key, secret = create_key(engine, name, names, terms)
        taken = count_owned(engine, key.id)
        _say(key)
        if any(taken.values()):
            numbers = ", ".join(f"{number:,} {table}" for table, number in taken.items())
            err.print(f"It takes over what was made before there were keys: {numbers}.")
        _print_secret(secret)
        return key

    _with_database("create", settings, act)


@needs_extra('"difficulty keys list"', "serve")
def show() -> None:
    """Lists the API keys, without their secrets."""
    from api.storage.keys import list_keys
    from difficulty_service.cli.console import print_table

    def act(engine: "Engine") -> None:
        print_table(
            ("id", "name", "scopes", "roots", "used (UTC)", "ends"),
            [
                (
                    key.id,
                    key.name,
                    ", ".join(sorted(key.scopes)),
                    _roots(key).replace(",", ", "),
                    _at(key.used_at, "%Y-%m-%d %H:%M", NEVER),
                    "revoked" if key.revoked_at else _at(key.terms.expires_at, "%Y-%m-%d", NEVER),
                )
                for key in list_keys(engine)
            ],
            whole=("id", "used (UTC)", "ends"),
        )

    _with_database("list", read_settings(), act)


@needs_extra('"difficulty keys change"', "serve")
def change(key_id: KeyId, /, *, expires: str | None = None, roots: str | None = None) -> None:
    """Changes the end or the roots of an API key, within seconds.

    Jobs in a root that it loses run on, and reappear when it gets the root back.

    Args:
        key_id: Id from `difficulty keys list`.
        expires: As for `difficulty keys create`, or never; default: unchanged.
        roots: As for `difficulty keys create`, or * for all; default: unchanged.
    """
    from api.storage.keys import change_key
    from difficulty_service.base.errors import ConfigError

    if expires is None and roots is None:
        raise ConfigError(
            "nothing is to be changed", "name a new end or other roots", parameter="expires"
        )
    settings = read_settings()

    def act(engine: "Engine") -> "Key":
        key = change_key(engine, key_id, _change(engine, settings, expires, roots))
        key = key or _unknown(key_id)
        _say(key)
        return key

    _with_database("change", settings, act)


@needs_extra('"difficulty keys rotate"', "serve")
def rotate(key_id: KeyId, /, *, overlap: str = "1d") -> None:
    """Gives an API key a new secret and prints it, once; the key keeps what it owns.

    Secrets older than the present one end at once.

    Args:
        key_id: Id from `difficulty keys list`.
        overlap: How long the present secret stays valid: 1d (also m, h, w), or 0 to end it at once.
    """
    from api.storage.keys import moment, rotate_key
    from difficulty_service.cli.console import err

    seconds = 0.0 if overlap.strip() == "0" else _seconds(overlap, "overlap")

    def act(engine: "Engine") -> "Key":
        key, secret = rotate_key(engine, key_id, seconds) or _unknown(key_id)
        _say(key)
        until = "has ended" if not seconds else f"is valid until {moment(key.replaced_until)}"
        err.print(f"Its secret before {until}.")
        _print_secret(secret)
        return key

    _with_database("rotate", read_settings(), act)


@needs_extra('"difficulty keys revoke"', "serve")
def revoke(key_id: KeyId, /) -> None:
    """Revokes an API key permanently.

    Args:
        key_id: Id from `difficulty keys list`.
    """
    from api.storage.keys import revoke_key
    from difficulty_service.cli.console import out

    def act(engine: "Engine") -> "Key":
        key = revoke_key(engine, key_id) or _unknown(key_id)
        out.print(f"key {key.id} ({key.name}) is revoked")
        return key

    _with_database("revoke", read_settings(), act)


def _with_database(
    command: str, settings: "Settings", act: Callable[["Engine"], "Key | None"]
) -> None:
    """Acts on the database; what was done to a key goes into the audit log, if that is a file.

    Raises:
        ConfigError: There is no database, and the command is to make no first key.
    """
    from api.logs import set_up_logging
    from api.storage.database import open_database

    if settings.audit_log is not None:  # first, since nothing is to be changed unless it can be
        set_up_logging(settings)
    _announce_new_database(command, settings)
    with open_database(settings) as engine:
        key = act(engine)
    if key is not None and settings.audit_log is not None:
        _record(command, key)


def _announce_new_database(command: str, settings: "Settings") -> None:
    """Says where a database is made: a service that runs elsewhere would not know its keys."""
    from api.settings import SQLITE_FILE
    from difficulty_service.base.errors import ConfigError
    from difficulty_service.cli.console import err

    folder = settings.data_dir.resolve()
    if settings.database_url is not None or (folder / SQLITE_FILE).exists():
        return
    if command != "create":
        raise ConfigError(
            f"there is no database in {folder}", "set DIFFICULTY_DATA_DIR to the service's folder"
        )
    err.print(
        f"A new database is made in {folder}. A service with another folder does not know its "
        "keys: set DIFFICULTY_DATA_DIR to that folder.",
    )
    if sys.stdin.isatty() and err.is_terminal and err.input("Make it? [Y/n] ").strip() not in YES:
        raise ConfigError("no key is made", "set DIFFICULTY_DATA_DIR to the service's folder")


def _record(command: str, key: "Key") -> None:
    from getpass import getuser

    import structlog

    from api.audit_log import AUDIT
    from api.storage.keys import moment

    try:
        account = getuser()
    except (KeyError, OSError):  # as in a container, where an account may have no name
        account = str(os.getuid())
    structlog.get_logger(AUDIT).info(
        "change",
        command=f"keys {command}",
        account=account,
        key=key.id,
        key_name=key.name,
        scopes=sorted(key.scopes),
        roots=None if key.roots is None else sorted(key.roots),
        expires=moment(key.terms.expires_at),
    )


def _change(
    engine: "Engine", settings: "Settings", expires: str | None, roots: str | None
) -> "Callable[[Terms], Terms]":
    """How the terms of a key change by the options that were given."""
    from api.storage.database import now
    from difficulty_service.cli.console import print_warnings

    given: dict[str, object] = {}
    if expires is not None:
        with engine.connect() as connection:
            given["expires_at"] = end_of(expires, now(connection))
    if roots is not None:
        names = frozenset(name.strip() for name in roots.split(",") if name.strip())
        given["roots"] = None if roots.strip() == ALL else names
        unknown = sorted(names - {ALL} - settings.roots.keys())
        print_warnings([f"DIFFICULTY_ROOTS has no root {name!r} here" for name in unknown])
    return lambda terms: replace(terms, **given)  # type: ignore[arg-type]


def end_of(text: str, at: float) -> float | None:
    """The end of a key in seconds since 1970, as it is written at some time; None for never.

    Raises:
        ConfigError: It is neither a length nor a date.
    """
    if text.strip() == NEVER:
        return None
    try:
        return datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return at + _seconds(text, "expires")


def _seconds(text: str, parameter: str) -> float:
    from difficulty_service.base.errors import ConfigError

    match = re.fullmatch(r"(\d{1,9})([mhdw])", text.strip())
    seconds = int(match[1]) * UNITS[match[2]] if match else 0.0
    if not 0 < seconds <= LONGEST:
        raise ConfigError(
            f"{text!r} is not a length of time",
            "write a number with m, h, d or w for minutes, hours, days or weeks, such as 90d, "
            "or for an end a date such as 2027-01-31",
            parameter=parameter,
        )
    return seconds


def _at(seconds: float | None, form: str, none: str) -> str:
    return none if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):{form}}"


def _roots(key: "Key") -> str:
    if key.roots is None:
        return "all"
    return ",".join(sorted(key.roots)) or "none"


def _say(key: "Key") -> None:
    from api.storage.keys import moment
    from difficulty_service.cli.console import err

    end = key.terms.expires_at
    err.print(
        f"key {key.id} ({key.name}): {', '.join(sorted(key.scopes))}; roots: {_roots(key)}; "
        f"expires: {NEVER if end is None else moment(end)}",
    )


def _print_secret(secret: str) -> None:
    from difficulty_service.cli.console import err, out

    err.print("Save the secret now; it cannot be shown again:")
    out.print(secret)


def _unknown(key_id: str) -> NoReturn:
    from difficulty_service.base.errors import ConfigError

    raise ConfigError(
        f"there is no key {key_id!r}", "`difficulty keys list` shows all", parameter="key_id"
    )
