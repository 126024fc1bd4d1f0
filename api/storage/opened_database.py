"""The database with the newest tables, or one clear reason why not."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.settings import Settings
from api.storage.database import connect, migrate
from difficulty_service.errors import ConfigError


@contextmanager
def opened_database(settings: Settings) -> Iterator[Engine]:
    """Connects and brings the tables up to date.

    Raises:
        ConfigError: The database does not answer.
    """
    engine = connect(settings.resolved_database_url.get_secret_value())
    try:
        migrate(engine)
        yield engine
    except SQLAlchemyError as error:
        # Not the whole message, which may have a statement and its values.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        raise ConfigError(
            f"the database does not answer ({reason}); check DIFFICULTY_DATABASE_URL"
        ) from error
    finally:
        engine.dispose()
