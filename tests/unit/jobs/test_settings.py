"""Configuration: from the environment and a file, with every problem at once."""

from pathlib import Path

import pytest

from jobs.blobs import store
from jobs.settings import Settings, SettingsError, load, redacted
from tests.support.cases import each

LONG = "a-password-of-more-than-32-characters"


def problems(environ: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(environ)
    return caught.value.problems


def env(**settings: str) -> dict[str, str]:
    return {f"MILLRACE_{name}": value for name, value in settings.items()}


def config(folder: Path, text: str) -> dict[str, str]:
    path = folder / "millrace.toml"
    path.write_text(text)
    return {"MILLRACE_CONFIG": str(path)}


def test_settings_are_defaults_or_come_from_the_environment_or_the_file(tmp_path: Path) -> None:
    settings = load({})
    assert (settings.host, settings.port, settings.models) == ("127.0.0.1", 8000, None)
    assert settings.home.is_absolute()
    assert load(env(PORT="", MODELS="")) == settings, "an empty variable is none"
    settings = load(env(PORT="9000", HOME="~/data", LEASE_S="2.5", AWAIT_WORKERS="true"))
    assert (settings.port, settings.lease_s, settings.await_workers) == (9000, 2.5, True)
    assert settings.home == Path.home() / "data"
    environ = config(tmp_path, 'MILLRACE_PORT = 9000\nMILLRACE_POOL = "gpu"\n')
    settings = load(environ | env(PORT="9001"))
    assert (settings.port, settings.pool) == (9001, "gpu")


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    environ = config(tmp_path, "MILLRACE_PRT = 1\nMILLRACE_MAX_ITEMS = 0\n")
    environ |= env(PORT="eighty", LEASE_S="0.5", KEEPER_INTERVAL_S="0", AWAIT_WORKERS="perhaps")
    found = problems(environ | env(OIDC_AUDIENCE="x"))
    named = ["PRT", "PORT", "MAX_ITEMS", "AWAIT_WORKERS", "LEASE_S", "KEEPER_INTERVAL_S"]
    named.append("OIDC_AUDIENCE")
    for name, problem in zip(named, found, strict=True):
        assert f"MILLRACE_{name} " in problem


def test_a_file_with_a_problem_is_named(tmp_path: Path) -> None:
    [problem] = problems(config(tmp_path, "port = 9000\n"))
    assert problem.startswith(f"{tmp_path}/millrace.toml: port is not a setting")
    [problem] = problems(config(tmp_path, 'MILLRACE_HOST_FILE = "/x"\n'))
    assert "MILLRACE_HOST_FILE is not a setting" in problem, "it is no secret"
    for text, case in each(["MILLRACE_PORT = ", "= 1", "\x00"], name=repr):
        with case:
            [problem] = problems(config(tmp_path, text))
            assert "is not valid TOML" in problem
    [problem] = problems(env(CONFIG=str(tmp_path / "absent.toml")))
    assert "absent.toml can't be read" in problem


def test_the_api_is_reached_where_it_listens() -> None:
    cases = [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("millrace.example", "http://millrace.example:8000"),
    ]
    for (host, url), case in each(cases):
        with case:
            assert load(env(HOST=host)).url == url


OIDC = env(OIDC_ISSUER="https://id.example", OIDC_AUDIENCE="millrace")


def test_an_identity_provider_is_taken_and_one_that_nobody_could_trust_refused() -> None:
    for more in ({}, env(OIDC_JWKS_URL="http://127.0.0.1:1/keys"), env(HOST="::")):
        assert load(OIDC | more).oidc_tenant_claim == "tenant"
    cases = [
        (env(OIDC_ISSUER=""), "AUDIENCE is set, but not MILLRACE_OIDC_ISSUER"),
        (env(OIDC_AUDIENCE=""), "AUDIENCE must be set with MILLRACE_OIDC_ISSUER"),
        (env(OIDC_ISSUER="http://id.example"), "ISSUER: must be https://"),
        (env(OIDC_ISSUER="id.example"), "ISSUER: must be https://"),
        (env(OIDC_JWKS_URL="file:///keys"), "JWKS_URL: must be https://"),
    ]
    for (changes, named), case in each(cases):
        with case:
            [problem] = problems(OIDC | changes)
            assert named in problem


def test_a_blob_store_is_a_folder_or_a_bucket() -> None:
    cases = [
        ("file:/srv/blobs", Path("/srv/blobs")),
        ("file:///srv/a b", Path("/srv/a b")),
        ("file:~/blobs", Path.home() / "blobs"),
        ("s3://bucket", ("bucket", "")),
        ("s3://bucket/a/b/", ("bucket", "a/b")),
    ]
    for (blobs, place), case in each(cases):
        with case:
            assert store.parse(load(env(BLOBS=blobs)).blobs) == place
    wrong = ["/srv/blobs", "file:blobs", "file:", "s3:bucket", "s3://", "s3:///prefix"]
    for blobs, case in each([*wrong, "gs://bucket"]):
        with case:
            [problem] = problems(env(BLOBS=blobs))
            assert problem.startswith("MILLRACE_BLOBS: ")


def test_the_pool_of_the_apis_is_no_workers(tmp_path: Path) -> None:
    for environ in (env(POOL="api"), config(tmp_path, 'MILLRACE_POOL = "api"\n')):
        [problem] = problems(environ)
        assert problem.startswith("MILLRACE_POOL: must be another name: that pool is of the api")


def test_a_time_that_no_clock_can_keep_is_refused() -> None:
    leases = [("MILLRACE_LEASE_S", value) for value in ("nan", "inf", "0", "-1", "soon")]
    patience = [("MILLRACE_SLOW_CLIENT_S", value) for value in ("0", "-1", "nan", "inf")]
    for (name, value), case in each(leases + patience):
        with case:
            [problem] = problems({name: value})
            assert name in problem


def test_settings_are_the_same_in_a_child_with_no_secret_from_a_file_and_may_be_evolved(
    tmp_path: Path,
) -> None:
    some = Settings(home=Path("/srv/a b"), port=0, await_workers=True, lease_s=1.5)
    database = "postgresql+psycopg://u@/d?host=/run/x"
    for settings in (Settings(), some, Settings(models=Path("/m.toml"), database_url=database)):
        assert load(settings.environment()) == settings
    (tmp_path / "secret").write_text("x" * 32)
    environ = env(SECRET_KEY_FILE=str(tmp_path / "secret"))
    assert load(environ | load(environ).environment()) == load(environ)
    settings = Settings(port=9000, pool="gpu")
    assert settings.evolve(port=9001) == Settings(port=9001, pool="gpu")


def test_the_broker_is_the_redis_unless_one_is_named_and_is_no_cluster() -> None:
    cases = [
        ("redis://h:1/0", "", "redis://h:1/0"),
        ("redis://h:1/0", "amqp://h", "amqp://h"),
        ("unix:///run/redis.sock?db=0", "", "redis+socket:///run/redis.sock"),
    ]
    for (redis_url, broker_url, broker), case in each(cases):
        with case:
            assert Settings(redis_url=redis_url, broker_url=broker_url).broker == broker
    cluster = env(REDIS_URL="redis+cluster://a,b")
    for broker in ("", "redis+cluster://b"):
        with pytest.raises(SettingsError, match="MILLRACE_BROKER_URL must be a single Redis"):
            load(cluster | env(BROKER_URL=broker))
    load(cluster | env(BROKER_URL="redis://c"))


def ages(items: str, results: str, jobs: str) -> dict[str, str]:
    return env(KEEP_ITEMS_DAYS=items, KEEP_RESULTS_DAYS=results, KEEP_JOBS_DAYS=jobs)


def test_a_job_outlives_its_payloads() -> None:
    for fitting in (ages("0", "0", "0"), ages("7", "0", "0"), ages("0.5", "30", "30")):
        load(fitting)
    cases = [
        (ages("7", "0", "30"), "KEEP_JOBS_DAYS is 30.0: a job is deleted last"),
        (ages("7", "31", "30"), "KEEP_JOBS_DAYS is 30.0: a job is deleted last"),
        (ages("-1", "0", "0"), "KEEP_ITEMS_DAYS must be greater than or equal to 0, not '-1'"),
        (ages("1", "nan", "0"), "KEEP_RESULTS_DAYS must be a finite number, not 'nan'"),
    ]
    for (environ, named), case in each(cases):
        with case:
            [problem] = problems(environ)
            assert named in problem


def test_a_secret_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"redis://:{LONG}@h\n")
    for name, case in each(["secret_key", "database_url", "redis_url", "broker_url"]):
        with case:
            found = load({f"MILLRACE_{name.upper()}_FILE": str(file)})
            assert getattr(found, name) == f"redis://:{LONG}@h"
            assert "password" not in repr(found)
    assert load(config(tmp_path, 'MILLRACE_SECRET_KEY_FILE = ""\n')).secret_key == ""


def test_a_secret_is_given_once_by_a_file_that_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("x" * 32)
    [problem] = problems(env(SECRET_KEY="y" * 32, SECRET_KEY_FILE=str(file)))
    assert problem.startswith("MILLRACE_SECRET_KEY and MILLRACE_SECRET_KEY_FILE are both set")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "absent", tmp_path / "binary"):
        [problem] = problems(env(REDIS_URL_FILE=str(path)))
        assert problem.startswith(f"MILLRACE_REDIS_URL_FILE: {path} can't be read")


def test_an_address_is_shown_without_what_is_secret() -> None:
    cases = [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:pw@h:1/0?password=pw&db=1", "redis://@h:1/0?password=…&db=1"),
        ("postgresql://u:pw@h/d?sslmode=verify-full", "postgresql://u@h/d?sslmode=verify-full"),
        ("postgresql://u:p%40w:x@h/d?sslpassword=pw", "postgresql://u@h/d?sslpassword=…"),
        ("amqp://u:pw@[::1]:5672//", "amqp://u@[::1]:5672//"),
        ("amqp://u:pw@[::1:5672//", "(set)"),
    ]
    for (url, as_shown), case in each(cases):
        with case:
            assert redacted(url) == as_shown


def test_a_broker_by_tls_checks_certificates() -> None:
    by_ca, required = "rediss://h/0?ssl_ca_certs=/ca.pem", "ssl_cert_reqs=required"
    cases = [
        ("rediss://h:1/0", f"rediss://h:1/0?{required}"),
        (by_ca, f"{by_ca}&{required}"),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
    ]
    for (url, broker), case in each(cases):
        with case:
            assert Settings(redis_url=url).broker == Settings(broker_url=url).broker == broker


def test_certificates_and_keys_belong_together_and_are_there(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    [problem] = problems(env(TLS_CERT=str(pem)))
    assert "MILLRACE_TLS_CERT and MILLRACE_TLS_KEY belong together" in problem
    [problem] = problems(env(TLS_CLIENT_CA=str(pem)))
    assert problem.startswith("MILLRACE_TLS_CLIENT_CA asks clients for certificates")
    [problem] = problems(env(CA=str(tmp_path / "absent.pem")))
    assert problem.endswith("absent.pem is no file that can be read")
    assert load(env(TLS_CERT=str(pem), TLS_KEY=str(pem))).url == "https://127.0.0.1:8000"


def test_notices_are_those_of_spot_workers(tmp_path: Path) -> None:
    [problem] = problems(env(SPOT_FILE=str(tmp_path / "reclaimed")))
    assert problem.startswith("MILLRACE_SPOT_FILE is set, but not MILLRACE_SPOT_NOTICE_S")
    [problem] = problems(env(SPOT_NOTICE_S="30", SPOT_METADATA_URL="http://127.0.0.1:1"))
    assert problem == "MILLRACE_SPOT_METADATA_URL is set, but not MILLRACE_SPOT_PROVIDER"
    [problem] = problems(env(SPOT_NOTICE_S="30", SPOT_PROVIDER="elsewhere"))
    assert "MILLRACE_SPOT_PROVIDER" in problem
    assert load(env(SPOT_NOTICE_S="30", SPOT_PROVIDER="gcp")).spot_provider == "gcp"
