"""Checks of PostgreSQL and Redis: reachable, or ready to be embedded; and of the clocks."""

from collections.abc import Iterator

from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock
from jobs.calls import redis as call_redis
from jobs.settings import Settings, SettingsError
from jobs.store import db
from migrations import schema
from ops.cli.setup.check import Check, State
from ops.embedded.account import account_for
from ops.embedded.errors import EmbeddedError
from ops.embedded.layout import Layout
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.embedded.server import Server

_POSTGRES, _REDIS = 15, (6, 2)  # least versions
_FAR_S = 1.0  # between two clocks: what is shown may be wrong by it
_ABOUT = text("SELECT current_setting('server_version_num'), extract(epoch FROM clock_timestamp())")


def checks(settings: Settings) -> Iterator[Check]:
    """Yields a check each; settings: as they are given, without the embedded services."""
    home = Layout.of(settings.home).home
    skews: dict[str, float] = {}
    if settings.database_url:
        yield _postgres(settings, skews)
    else:
        yield _embedded(EmbeddedPostgres(home))
    if settings.redis_url:
        yield _redis(settings, skews)
    else:
        yield _embedded(EmbeddedRedis(home))
    yield _clock(settings, skews)


def _embedded(server: Server) -> Check:
    try:
        binary = server.binary()
        account_for(server.layout.data)
    except (EmbeddedError, OSError) as error:
        return Check(server.name, "problem", "can't be embedded here", str(error))
    return Check(server.name, "ok", f"embedded: `millrace up` starts {binary.name}")


def _postgres(settings: Settings, skews: dict[str, float]) -> Check:
    name, mend = "postgres", "start it, or mend MILLRACE_DATABASE_URL; without it one is embedded"
    engine = None
    try:
        db.check_sessions(settings.database_url)
        engine = db.connect(settings.database_url, pool_size=1)
        with engine.connect() as tx:
            version, now_s = tx.execute(_ABOUT).one()
        skews["PostgreSQL"] = float(now_s) - clock.now().timestamp()
        if int(version) // 10_000 < _POSTGRES:
            words = f"version {int(version) // 10_000} is too old"
            return Check(name, "problem", words, f"use PostgreSQL {_POSTGRES} or later")
        if problem := schema.read(engine).problem:
            words, _, mend = problem.partition(": ")
            return Check(name, "problem", words, mend)
    except SettingsError as error:
        _, words, mend = str(error).split(": ", 2)
        return Check(name, "problem", words, mend)
    except (SQLAlchemyError, *db.CONNECTION_ERRORS, ValueError) as error:
        return Check(name, "problem", str(error).splitlines()[0], mend)
    finally:
        if engine is not None:
            engine.dispose()
    return Check(name, "ok", f"PostgreSQL {int(version) // 10_000} answers; its schema is right")


def _redis(settings: Settings, skews: dict[str, float]) -> Check:
    name, mend = "redis", "start it, or mend MILLRACE_REDIS_URL; without it one is embedded"
    try:
        client = call_redis.connect(settings.redis_url)
        seconds, micros = client.time()
        skews["Redis"] = seconds + micros / 1e6 - clock.now().timestamp()
        version = str(client.info("server")["redis_version"])
    except (RedisError, ValueError, TypeError, KeyError, OSError) as error:
        return Check(name, "problem", str(error) or type(error).__name__, mend)
    if tuple(map(int, version.split(".")[:2])) < _REDIS:
        least = ".".join(map(str, _REDIS))
        return Check(
            name, "problem", f"version {version} is too old", f"use Redis {least} or later"
        )
    return Check(name, "ok", f"Redis {version} answers")


def _clock(settings: Settings, skews: dict[str, float]) -> Check:
    """Compares this machine's clock with those of the servers."""
    far = {name: skew for name, skew in skews.items() if abs(skew) >= _FAR_S}
    if not far:
        with_whom = f"agrees with {' and '.join(skews)}" if skews else "is the only one"
        return Check("clock", "ok", f"this machine's clock {with_whom}")
    name, skew_s = max(far.items(), key=lambda one: abs(one[1]))
    words = f"this machine's clock is {abs(skew_s):,.1f} s {'behind' if skew_s > 0 else 'ahead of'}"
    state: State = "problem" if abs(skew_s) >= settings.lease_s else "warning"
    mend = "set it by NTP on both machines (`timedatectl set-ntp true`)"
    return Check("clock", state, f"{words} {name}'s", mend)
