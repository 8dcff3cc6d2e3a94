"""Load of a server, from the text of its metrics."""

from collections.abc import Iterator

import pytest

from tests.support.wait import eventually
from workers.engines.upstream.streaming.server_load import ServerLoad, engine_loads
from workers.http_client.client import NoResponse, Response

HEAD = (
    b"# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
    b"# TYPE vllm:num_requests_running gauge\n"
    b'vllm:num_requests_running{engine="0",model_name="m"} 8.0\n'
    b'vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="27000"} 1.0\n'
    b'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 5.0\n'
)


def vllm(usage: float, waiting: float = 0, engine: int = 0) -> bytes:
    labels = f'{{engine="{engine}",model_name="org/m-{{x}}"}}'
    usage_line = f"vllm:kv_cache_usage_perc{labels} {usage}\n"
    return HEAD + f"{usage_line}vllm:num_requests_waiting{labels} {waiting}\n".encode()


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        (b"", []),
        (HEAD, []),
        (b"<html>vllm:num_requests_waiting 4</html>", []),
        (vllm(0.5), [(False, False)]),
        (vllm(0.9), [(True, False)]),
        (vllm(1), [(True, False)]),
        (vllm(1e-05, 3.0), [(False, True)]),
        (vllm(float("nan")), [(False, False)]),
        (b'vllm:gpu_cache_usage_perc{model_name="m"} 0.93\n', [(True, False)]),
        (b'sglang:token_usage{model_name="m"} 0.95\n', [(True, False)]),
        (b'sglang:num_queue_reqs{model_name="m"} 2.0\r\n', [(False, True)]),
        (b"llamacpp:requests_deferred 1\nllamacpp:kv_cache_usage_ratio 0.2\n", [(False, True)]),
        (b"tgi_queue_size 0\n", [(False, False)]),
    ],
)
def test_the_metrics_of_known_servers_are_read(text: bytes, loads: list[tuple[bool, bool]]) -> None:
    assert engine_loads(text) == loads


def test_each_engine_of_a_server_is_told_apart() -> None:
    assert sorted(engine_loads(vllm(0.95) + vllm(0.2, engine=1))) == [(False, False), (True, False)]


class Server:
    """Answers with its text; counts the reads."""

    def __init__(self) -> None:
        self.text, self.paths = b"", list[str]()

    def get(self, path: str) -> Response:
        self.paths.append(path)
        if not self.text:
            raise NoResponse("nobody there")
        return Response(200, {}, self.text)


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def load(server: Server) -> Iterator[ServerLoad]:
    server.text = vllm(0.95) + vllm(0.95, engine=1)
    made = ServerLoad(server.get, "http://127.0.0.1/prefix/v1/")
    yield made
    made.close()


def read_again(load: ServerLoad, server: Server, times: int = 1) -> None:
    most = len(server.paths) + times
    eventually(lambda: (load.use(), len(server.paths) > most)[1])


def test_a_server_is_full_when_all_its_engines_are(load: ServerLoad, server: Server) -> None:
    eventually(lambda: load.full)
    assert load.ranks
    server.text = vllm(0.95) + vllm(0.2, engine=1)
    read_again(load, server)
    assert not load.full
    assert set(server.paths) == {"/prefix/metrics"}


def test_requests_that_wait_for_a_moment_do_not_count(load: ServerLoad, server: Server) -> None:
    server.text = vllm(0.1, waiting=2)
    read_again(load, server, times=2)
    assert load.full
    server.text = vllm(0.1)
    read_again(load, server)
    assert not load.full


def test_a_server_that_tells_nothing_any_more_is_not_full(load: ServerLoad, server: Server) -> None:
    eventually(lambda: load.full)
    server.text = b""
    eventually(lambda: (load.use(), not load.full)[1])


def test_a_model_that_is_not_used_is_not_asked_about(load: ServerLoad, server: Server) -> None:
    eventually(lambda: load.full)
    load.close()
    assert len(server.paths) == 1
