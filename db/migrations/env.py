"""Runs revisions on the connection that `db.connections.opening` hands over, inside its transaction."""

from alembic import context

from db.tables.models import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
