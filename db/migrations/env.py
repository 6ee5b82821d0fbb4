"""Alembic's entry: runs the migrations on the connection that `db.migrate` hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="schema_version",
    version_table_schema="public",
    transaction_per_migration=True,
)
with context.begin_transaction():
    context.run_migrations()
