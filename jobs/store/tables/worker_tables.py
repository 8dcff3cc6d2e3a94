"""Tables of workers and launches."""

from sqlalchemy import (
    ARRAY,
    REAL,
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Identity,
    Integer,
    Table,
    Text,
)

from jobs.store.tables.columns import FALSE, NOW, Time, column, key, metadata

workers = Table(
    "workers",
    metadata,
    Column("incarnation", BigInteger, Identity(always=True), primary_key=True),
    column("name", Text),
    column("pool", Text),
    column("device", Text),
    column("models", ARRAY(Text)),
    column("state", Text),
    column("started_at", Time, NOW),
    column("heartbeat_at", Time, NOW),
    Column("watched_at", Time),
    Column("died", Text),
    Column("ended_at", Time),
    Column("drain_asked_at", Time),
    column("death_told", Boolean, FALSE),
)

worker_models = Table(
    "worker_models",
    metadata,
    Column(
        "incarnation",
        ForeignKey("workers.incarnation", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    key("model", Text),
    column("state", Text),
    column("memory_mb", REAL),
    column("load_ms", REAL),
    column("error", Text),
    column("since", Time, NOW),
)

launches = Table(
    "launches",
    metadata,
    key("id", BigInteger),
    column("incarnation", BigInteger),
    column("model", Text),
    column("version", Text),
    column("bucket", Integer),
    column("reason", Text),
    column("items", Integer),
    column("calls", Integer),
    column("units", Integer),
    column("padded_units", Integer),
    column("predicted_ms", REAL),
    column("engine_ms", REAL),
    column("started_at", Time),
    Column("batch_ms", REAL),
)
