"""Which database the artifacts of a folder belong to.

Servers and workers delete the files of jobs that their database does not know. Those of another
database, which was given the same folder by mistake, would be among them.
"""

import sqlalchemy as sa

from api.storage.artifacts import Artifacts
from api.storage.database import INSERTS, retry, write_transaction
from api.storage.tables import IDENTITY, new_id
from difficulty_service.base.errors import DifficultyError

MARKER = "database-id"
"""File in the folder of the artifacts with the id of their database."""

NAME = "database"
LONGEST_ID = 100


class ArtifactsOfAnother(DifficultyError):
    """The artifacts belong to another database."""


def require_own_artifacts(engine: sa.Engine, artifacts: Artifacts) -> None:
    """Marks artifacts that are not marked yet as those of a database.

    Raises:
        ArtifactsOfAnother: They are those of another one.
    """
    own = database_id(engine)
    # Of two processes that mark at the same moment the second one finds the mark of the first.
    owner = artifacts.read_text(MARKER, LONGEST_ID) or artifacts.write_new_text(MARKER, own)
    if owner != own:
        raise ArtifactsOfAnother(
            f"the artifacts in {artifacts.root.path} belong to another database, which has the id "
            f"{owner!r}; this one has {own!r}",
            "give each database artifacts of its own by DIFFICULTY_ARTIFACTS or "
            f"DIFFICULTY_DATA_DIR, or delete the file {MARKER} there if that database is gone: "
            "then this one deletes all artifacts that are not of its jobs",
            parameter="artifacts",
        )


@retry
def database_id(engine: sa.Engine) -> str:
    """The id of a database, which is made when it is first asked for."""
    query = sa.select(IDENTITY.c.id).where(IDENTITY.c.name == NAME)
    with engine.connect() as connection:
        known = connection.execute(query).scalar_one_or_none()
    if known is not None:
        return known
    with write_transaction(engine) as connection:
        added = INSERTS[connection.dialect.name](IDENTITY).values(name=NAME, id=new_id())
        connection.execute(added.on_conflict_do_nothing(index_elements=["name"]))
        return str(connection.execute(query).scalar_one())
