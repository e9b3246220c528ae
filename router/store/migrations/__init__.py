"""Makes a database's tables what this version knows; may import none of our packages."""

import logging
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

_LOCK = 7_305_808_869_231_256_933
"""The number of the lock by which routers that start at once migrate a PostgreSQL one after the other."""

logging.getLogger("alembic").setLevel(logging.WARNING)


class NewerSchema(ValueError):
    """Raised for a database of a newer version; the sentence goes on behind the database's name."""


def migrate(connection: Connection) -> None:
    """Runs the migrations that the database lacks, inside a transaction that the caller commits. Raises NewerSchema."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    scripts = ScriptDirectory.from_config(config)
    known = {revision.revision for revision in scripts.walk_revisions()}
    for found in MigrationContext.configure(connection).get_current_heads():
        if found not in known:
            raise NewerSchema(f"has the schema {found} of a newer version of this server, which knows those up to "
                              f"{scripts.get_current_head()}: run the newer version, or name another database")
    command.upgrade(config, "head")
