"""Databases of tests: copies of a template that are emptied and used again, since a copy takes ten
times as long as emptying one."""

import itertools

import psycopg

_numbers = itertools.count()
_LEAVE_WITHIN_MS = 10_000

_CATALOGS = (
    "attribute,attrdef,constraint,index,inherits,namespace,policy,proc,statistic,trigger,type"
)

# Changes with every change of the schema, and with statistics for the planner. TRUNCATE changes
# rows of pg_class, so that only the columns count there that it leaves.
_SCHEMA = " UNION ALL ".join(
    [
        "SELECT md5(string_agg(concat_ws(' ', oid, relname, relkind, relnatts, relowner, relacl,"
        " relrowsecurity, relforcerowsecurity, reloptions), ',' ORDER BY oid))"
        " FROM pg_class WHERE oid >= 16384",
        "SELECT string_agg(version_num, ',') FROM alembic_version",
        *(
            f"SELECT concat_ws(' ', count(*), max(xmin::text::bigint)) FROM pg_{catalog}"
            for catalog in _CATALOGS.split(",")
        ),
    ]
)
_FILLED = """
SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
WHERE relkind = 'r' AND oid >= 16384 AND relname <> 'alembic_version' AND pg_relation_size(oid) > 0
"""
_RESET_SEQUENCES = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE last_value IS NOT NULL
"""


class TestDatabases:
    """Databases that begin as copies of `template`, on the server of `url` (its main database).

    Each use has a name of its own, so that what a test left running finds its database no more.
    """

    __test__ = False

    def __init__(self, url: str, template: str) -> None:
        self._url, self._template = url, template
        self._free: list[str] = []
        self._schema: list[tuple[str, ...]] = []

    def take(self) -> str:
        """Returns the name of an empty database with the schema."""
        name = f"test_{next(_numbers)}"
        if self._free:
            self._admin(f"ALTER DATABASE {self._free.pop()} RENAME TO {name}")
        else:
            self._admin(f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY FILE_COPY")
        return name

    def give_back(self, name: str) -> None:
        """Empties a database for its next use; one whose schema a test has changed is dropped."""
        try:
            self._admin(
                "SELECT pg_terminate_backend(pid, %s) FROM pg_stat_activity WHERE datname = %s",
                (_LEAVE_WITHIN_MS, name),
            )
            emptied = self._empty(name)
        except psycopg.Error:  # a test may forbid connections
            emptied = False
        if emptied:
            self._free.append(name)
        else:
            self._admin(f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, name: str) -> str:
        return self._url.replace("/millrace?", f"/{name}?")

    def _empty(self, name: str) -> bool:
        """Empties all tables. Returns False where the schema isn't that of the template."""
        self._schema = self._schema or self._schema_of(self._template)
        with self._connect(name) as connection:
            if connection.execute(_SCHEMA).fetchall() != self._schema:
                return False
            (filled,) = connection.execute(_FILLED).fetchone() or (None,)
            if filled:
                connection.execute("SET session_replication_role = replica")  # no triggers
                connection.execute(f"TRUNCATE {filled} CASCADE")
            connection.execute(_RESET_SEQUENCES)
            connection.execute("SELECT pg_stat_reset()")  # an invariant counts updates
        return True

    def _schema_of(self, name: str) -> list[tuple[str, ...]]:
        with self._connect(name) as connection:
            return connection.execute(_SCHEMA).fetchall()

    def _admin(self, statement: str, parameters: tuple[object, ...] | None = None) -> None:
        with self._connect("millrace") as connection:
            connection.execute(statement, parameters)

    def _connect(self, name: str) -> psycopg.Connection[tuple[str, ...]]:
        url = self.url(name).replace("postgresql+psycopg://", "postgresql://")
        return psycopg.connect(url, autocommit=True)
