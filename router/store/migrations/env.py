"""The script by which alembic runs migrations; `penstock.router.store.migrations` gives it the connection."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=False)
context.run_migrations()
