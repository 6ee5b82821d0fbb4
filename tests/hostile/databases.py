"""Roles, databases and URLs as hosts have them. A new row is one line; `prepare` makes it on a server."""

from dataclasses import dataclass, field

import psycopg
from psycopg import sql


@dataclass(frozen=True)
class DatabaseHost:
    """What somebody has set on the role or on the database, or written into the URL's query."""

    name: str
    role: dict[str, str] = field(default_factory=dict)
    database: dict[str, str] = field(default_factory=dict)
    query: str = ""


HOSTS = (
    DatabaseHost("datestyle", role={"datestyle": "SQL, DMY"}),
    DatabaseHost("datestyle german", role={"datestyle": "German"}),
    DatabaseHost("intervalstyle", role={"intervalstyle": "sql_standard"}),
    DatabaseHost("time zone of the role", role={"timezone": "America/St_Johns"}),
    DatabaseHost("time zone of the database", database={"timezone": "Asia/Kolkata"}),
    DatabaseHost("client encoding", role={"client_encoding": "LATIN1"}),
    DatabaseHost("serializable", role={"default_transaction_isolation": "serializable"}),
    DatabaseHost("read-only role", role={"default_transaction_read_only": "on"}),
    DatabaseHost("read-only database", database={"default_transaction_read_only": "on"}),
    DatabaseHost("deferrable", role={"default_transaction_deferrable": "on"}),
    DatabaseHost("statement timeout", role={"statement_timeout": "25ms"}),
    DatabaseHost("lock timeout", database={"lock_timeout": "1ms"}),
    DatabaseHost("idle session timeout", role={"idle_session_timeout": "50ms"}),
    DatabaseHost("idle in transaction", role={"idle_in_transaction_session_timeout": "20ms"}),
    DatabaseHost("search path", role={"search_path": "nowhere"}),
    DatabaseHost("strings", role={"standard_conforming_strings": "off", "bytea_output": "escape"}),
    DatabaseHost("floats", role={"extra_float_digits": "-15"}),
    DatabaseHost("nulls", role={"transform_null_equals": "on", "array_nulls": "off"}),
    DatabaseHost("options in the URL", query="options=-c%20work_mem%3D9MB%20-c%20timezone%3DAsia/Tokyo"),
    DatabaseHost("read-write in the URL", query="target_session_attrs=read-write"),
    DatabaseHost("encoding in the URL", query="client_encoding=LATIN1"),
    DatabaseHost("name in the URL", query="application_name=somebody"),
)


def prepare(admin: psycopg.Connection, url: str, host: DatabaseHost, role: str) -> str:
    """Set what the host has on a superuser `role` (made here) and on the URL's database; its URL as that role."""
    name = sql.Identifier(role)
    parts = psycopg.conninfo.conninfo_to_dict(url)
    database = sql.Identifier(str(parts["dbname"]))
    admin.execute(sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD 'given'").format(name))
    for what, settings in (("ROLE", host.role), ("DATABASE", host.database)):
        for key, value in settings.items():
            statement = "ALTER ROLE {} SET {} TO {}" if what == "ROLE" else "ALTER DATABASE {} SET {} TO {}"
            target = name if what == "ROLE" else database
            admin.execute(sql.SQL(statement).format(target, sql.Identifier(key), sql.Literal(value)))
    query = f"?{host.query}" if host.query else ""
    return f"postgresql://{role}:given@{parts['host']}:{parts['port']}/{parts['dbname']}{query}"
