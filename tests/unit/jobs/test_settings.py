"""Configuration: from the environment and a file, with every problem at once."""

from pathlib import Path

import pytest

from jobs.blobs import store
from jobs.settings import Settings, SettingsError, load, redacted
from tests.support.cases import each


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


def test_without_any_setting_the_defaults_hold() -> None:
    settings = load({})
    assert (settings.host, settings.port, settings.models) == ("127.0.0.1", 8000, None)
    assert settings.home.is_absolute()


def test_settings_come_from_the_environment() -> None:
    settings = load(env(PORT="9000", HOME="~/data", LEASE_S="2.5", AWAIT_WORKERS="true"))
    assert (settings.port, settings.lease_s, settings.await_workers) == (9000, 2.5, True)
    assert settings.home == Path.home() / "data"


def test_settings_come_from_the_file_and_the_environment_wins(tmp_path: Path) -> None:
    environ = config(tmp_path, 'MILLRACE_PORT = 9000\nMILLRACE_POOL = "gpu"\n')
    settings = load(environ | {"MILLRACE_PORT": "9001"})
    assert (settings.port, settings.pool) == (9001, "gpu")


def test_an_empty_variable_is_none() -> None:
    assert load({"MILLRACE_PORT": "", "MILLRACE_MODELS": ""}) == load({})


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    environ = config(tmp_path, "MILLRACE_PRT = 1\nMILLRACE_MAX_ITEMS = 0\n")
    environ |= env(PORT="eighty", LEASE_S="0.5", KEEPER_INTERVAL_S="0", AWAIT_WORKERS="perhaps")
    found = problems(environ | env(OIDC_AUDIENCE="x"))
    named = ["PRT", "PORT", "MAX_ITEMS", "AWAIT_WORKERS", "LEASE_S", "KEEPER_INTERVAL_S"]
    named.append("OIDC_AUDIENCE")
    for name, problem in zip(named, found, strict=True):
        assert f"MILLRACE_{name} " in problem


def test_a_name_that_is_no_setting_is_refused_in_the_file(tmp_path: Path) -> None:
    [problem] = problems(config(tmp_path, "port = 9000\n"))
    assert problem.startswith(f"{tmp_path}/millrace.toml: port is not a setting")


@pytest.mark.parametrize("text", ["MILLRACE_PORT = ", "= 1", "\x00"])
def test_a_file_that_is_no_toml_is_refused(tmp_path: Path, text: str) -> None:
    [problem] = problems(config(tmp_path, text))
    assert "is not valid TOML" in problem


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    [problem] = problems({"MILLRACE_CONFIG": str(tmp_path / "absent.toml")})
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
            assert load({"MILLRACE_HOST": host}).url == url


OIDC = {"MILLRACE_OIDC_ISSUER": "https://id.example", "MILLRACE_OIDC_AUDIENCE": "millrace"}


def test_an_identity_provider_is_taken() -> None:
    cases = [{}, {"MILLRACE_OIDC_JWKS_URL": "http://127.0.0.1:1/keys"}, {"MILLRACE_HOST": "::"}]
    for more, case in each(cases):
        with case:
            assert load(OIDC | more).oidc_tenant_claim == "tenant"


def test_an_identity_provider_that_nobody_could_trust_is_refused() -> None:
    cases = [
        ({"MILLRACE_OIDC_ISSUER": ""}, "AUDIENCE is set, but not MILLRACE_OIDC_ISSUER"),
        ({"MILLRACE_OIDC_AUDIENCE": ""}, "AUDIENCE must be set with MILLRACE_OIDC_ISSUER"),
        ({"MILLRACE_OIDC_ISSUER": "http://id.example"}, "ISSUER: must be https://"),
        ({"MILLRACE_OIDC_ISSUER": "id.example"}, "ISSUER: must be https://"),
        ({"MILLRACE_OIDC_JWKS_URL": "file:///keys"}, "JWKS_URL: must be https://"),
    ]
    for (changes, named), case in each(cases):
        with case:
            [problem] = problems(OIDC | changes)
            assert named in problem


def test_a_blob_store_that_is_none_is_refused() -> None:
    cases = [
        "/srv/blobs",
        "file:blobs",
        "file:",
        "s3:bucket",
        "s3://",
        "s3:///prefix",
        "gs://bucket",
    ]
    for blobs, case in each(cases):
        with case:
            [problem] = problems({"MILLRACE_BLOBS": blobs})
            assert problem.startswith("MILLRACE_BLOBS: ")


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
            assert store.parse(load({"MILLRACE_BLOBS": blobs}).blobs) == place


@pytest.mark.parametrize("lease", ["nan", "inf", "0", "-1", "soon"])
def test_a_lease_that_no_clock_can_keep_is_refused(lease: str) -> None:
    [problem] = problems({"MILLRACE_LEASE_S": lease})
    assert "MILLRACE_LEASE_S" in problem


def test_a_child_process_reads_the_same_settings() -> None:
    cases = [
        Settings(),
        Settings(home=Path("/srv/a b"), port=0, await_workers=True, lease_s=1.5),
        Settings(models=Path("/m.toml"), database_url="postgresql+psycopg://u@/d?host=/run/x"),
    ]
    for settings, case in each(cases):
        with case:
            assert load(settings.environment()) == settings


def test_evolving_changes_what_is_named_and_nothing_else() -> None:
    settings = Settings(port=9000, pool="gpu")
    assert settings.evolve(port=9001) == Settings(port=9001, pool="gpu")


def test_the_broker_is_the_redis_unless_one_is_named() -> None:
    cases = [
        ("redis://h:1/0", "", "redis://h:1/0"),
        ("redis://h:1/0", "amqp://h", "amqp://h"),
        ("unix:///run/redis.sock?db=0", "", "redis+socket:///run/redis.sock"),
    ]
    for (redis_url, broker_url, broker), case in each(cases):
        with case:
            assert Settings(redis_url=redis_url, broker_url=broker_url).broker == broker


@pytest.mark.parametrize("broker", ["", "redis+cluster://b"])
def test_nudges_need_a_broker_that_is_no_cluster(broker: str) -> None:
    environ = {"MILLRACE_REDIS_URL": "redis+cluster://a,b", "MILLRACE_BROKER_URL": broker}
    with pytest.raises(SettingsError, match="MILLRACE_BROKER_URL must be a single Redis"):
        load(environ)
    load(environ | {"MILLRACE_BROKER_URL": "redis://c"})


def test_ages_that_fit_together_are_taken() -> None:
    cases = [("0", "0", "0"), ("7", "0", "0"), ("0.5", "30", "30")]
    for (items, results, jobs), case in each(cases):
        with case:
            load(ages(items, results, jobs))


def test_a_job_outlives_its_payloads() -> None:
    cases = [
        ("7", "0", "30", "KEEP_JOBS_DAYS is 30.0: a job is deleted last"),
        ("7", "31", "30", "KEEP_JOBS_DAYS is 30.0: a job is deleted last"),
        ("-1", "0", "0", "KEEP_ITEMS_DAYS must be greater than or equal to 0, not '-1'"),
        ("1", "nan", "0", "KEEP_RESULTS_DAYS must be a finite number, not 'nan'"),
    ]
    for (items, results, jobs, named), case in each(cases):
        with case:
            [problem] = problems(ages(items, results, jobs))
            assert named in problem


def ages(items: str, results: str, jobs: str) -> dict[str, str]:
    return env(KEEP_ITEMS_DAYS=items, KEEP_RESULTS_DAYS=results, KEEP_JOBS_DAYS=jobs)


SECRETS = ["secret_key", "database_url", "redis_url", "broker_url"]


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_may_stand_in_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("redis://:a-password-of-more-than-32-characters@h\n")
    found = load({f"MILLRACE_{name.upper()}_FILE": str(tmp_path / "secret")})
    assert getattr(found, name) == "redis://:a-password-of-more-than-32-characters@h"
    assert "password" not in repr(found)


def test_a_secret_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * 32)
    file = str(tmp_path / "secret")
    [problem] = problems(env(SECRET_KEY="y" * 32, SECRET_KEY_FILE=file))
    assert problem.startswith("MILLRACE_SECRET_KEY and MILLRACE_SECRET_KEY_FILE are both set")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_secret_that_cant_be_read_is_named_by_its_path(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    [problem] = problems({"MILLRACE_REDIS_URL_FILE": str(path)})
    assert problem.startswith(f"MILLRACE_REDIS_URL_FILE: {path} can't be read")


def test_what_is_no_secret_stands_in_no_file(tmp_path: Path) -> None:
    [problem] = problems(config(tmp_path, 'MILLRACE_HOST_FILE = "/x"\n'))
    assert "MILLRACE_HOST_FILE is not a setting" in problem
    assert load(config(tmp_path, 'MILLRACE_SECRET_KEY_FILE = ""\n')).secret_key == ""


def test_a_child_process_reads_no_secret_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * 32)
    environ = {"MILLRACE_SECRET_KEY_FILE": str(tmp_path / "secret")}
    settings = load(environ)
    assert load(environ | settings.environment()) == settings


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
    cases = [
        ("rediss://h:1/0", "rediss://h:1/0?ssl_cert_reqs=required"),
        (
            "rediss://h/0?ssl_ca_certs=/ca.pem",
            "rediss://h/0?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required",
        ),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none"),
    ]
    for (url, broker), case in each(cases):
        with case:
            assert Settings(redis_url=url).broker == broker
            assert Settings(broker_url=url).broker == broker


def test_certificates_and_keys_belong_together_and_are_there(tmp_path: Path) -> None:
    pem = tmp_path / "x.pem"
    pem.touch()
    [problem] = problems({"MILLRACE_TLS_CERT": str(pem)})
    assert "MILLRACE_TLS_CERT and MILLRACE_TLS_KEY belong together" in problem
    [problem] = problems({"MILLRACE_TLS_CLIENT_CA": str(pem)})
    assert problem.startswith("MILLRACE_TLS_CLIENT_CA asks clients for certificates")
    [problem] = problems({"MILLRACE_CA": str(tmp_path / "absent.pem")})
    assert problem.endswith("absent.pem is no file that can be read")
    found = load({"MILLRACE_TLS_CERT": str(pem), "MILLRACE_TLS_KEY": str(pem)})
    assert found.url == "https://127.0.0.1:8000"


def test_notices_are_those_of_spot_workers(tmp_path: Path) -> None:
    [problem] = problems({"MILLRACE_SPOT_FILE": str(tmp_path / "reclaimed")})
    assert problem.startswith("MILLRACE_SPOT_FILE is set, but not MILLRACE_SPOT_NOTICE_S")
    spot = {"MILLRACE_SPOT_NOTICE_S": "30"}
    [problem] = problems({**spot, "MILLRACE_SPOT_METADATA_URL": "http://127.0.0.1:1"})
    assert problem == "MILLRACE_SPOT_METADATA_URL is set, but not MILLRACE_SPOT_PROVIDER"
    [problem] = problems({**spot, "MILLRACE_SPOT_PROVIDER": "elsewhere"})
    assert "MILLRACE_SPOT_PROVIDER" in problem
    assert load({**spot, "MILLRACE_SPOT_PROVIDER": "gcp"}).spot_provider == "gcp"


@pytest.mark.parametrize("patience", ["0", "-1", "nan", "inf"])
def test_patience_with_slow_clients_has_an_end(patience: str) -> None:
    [problem] = problems({"MILLRACE_SLOW_CLIENT_S": patience})
    assert "MILLRACE_SLOW_CLIENT_S" in problem
