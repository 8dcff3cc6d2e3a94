"""The command line against a whole platform: what goes in comes out, in every form."""

import csv
import gzip
import json
import re
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from millrace import Client
from millrace.progress import Progress
from ops.cli.main import main
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import child_of
from tests.support.command_line import run_millrace
from tests.support.jobs import paused as paused_job
from tests.support.platforms import OPEN
from tests.support.processes import interruptible
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = OPEN


@pytest.fixture(autouse=True)
def _here(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in an empty folder, and talk to this platform."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_URL", platform.url)


def json_of(*arguments: str, **more: Any) -> Any:
    return json.loads(run_millrace(*arguments, "--json", **more).stdout)


def job_of(*inputs: Any, model: str = "echo") -> str:
    """A job of these that has ended."""
    lines = "".join(json.dumps(one) + "\n" for one in inputs).encode()
    done = json_of("submit", "-", "--model", model, "--wait", input=lines)
    assert done["state"] == "completed"
    return str(done["id"])


@pytest.fixture
def paused(http: httpx.Client) -> str:
    """A job that doesn't end by itself."""
    return paused_job(http, "batchstring", ["x"] * 3000)


def newest(client: Client) -> list[str]:
    return [job["id"] for job in client.request("GET", "/jobs")["data"]]


@pytest.mark.parametrize("name", ["people.csv", "people.csv.gz"])
def test_csv_goes_in_and_out(name: str) -> None:
    raw = b'id,text\nann,"hello, world"\nbob,"two\nlines"\n'
    Path(name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    columns = ("--column", "text", "--id-column", "id")
    run_millrace("submit", name, "--model", "batchstring", *columns, "-o", "out.csv")
    with Path("out.csv").open(newline="") as file:
        found = [(row["custom_id"], row["output"]) for row in csv.DictReader(file)]
    assert found == [("ann", "HELLO, WORLD"), ("bob", "TWO\nLINES")]


def test_everything_of_a_job_can_be_said() -> None:
    Path("a.txt").write_text("one\ntwo\n")
    said = json_of(
        "submit", "a.txt", "--model", "minilm@1", "--params", '{"truncate": 64}', "--metadata",
        "day=monday", "--metadata", "a=b=c", "--class", "bulk", "--priority", "7",
        "--expires-in-s", "never", "--on-invalid", "fail_item", "--versioning", "pinned",
        "--idempotency-key", "once", "--name", "Monday's", "--label", "team=search",
    )  # fmt: skip
    assert (said["params"], said["class"], said["priority"]) == ({"truncate": 64}, "bulk", 7)
    assert said["versioning"] == "pinned"
    assert (said["metadata"], said["expires_at"]) == ({"day": "monday", "a": "b=c"}, None)
    assert (said["name"], said["labels"]) == ("Monday's", {"team": "search"})
    line = run_millrace("jobs", "--label", "team=search", "--name", "MONDAY").output
    assert line.startswith(f"{said['id']}  Monday's  team=search  minilm@1  ")
    assert "Monday's  team=search" in run_millrace("job", said["id"]).output
    assert "no such jobs" in run_millrace("jobs", "--label", "team=mail").output
    again = ("submit", "a.txt", "--model", "minilm@1", "--idempotency-key", "once")
    assert "Idempotency-Key" in run_millrace(*again, status=1).output  # with other parameters


#: What follows `submit --model echo`, the exit status, and why.
WRONG = [
    ("a.txt --column x", 1, "a.txt: texts have no columns"),
    ("a.txt --metadata x", 2, "'x' is not NAME=VALUE"),
    ("a.txt --params []", 2, "must be a JSON object"),
    ("none.txt", 2, "'none.txt' does not exist"),
    ("a.txt -", 2, "standard input is read alone"),
    ("a.txt s3://bucket/a.csv", 2, "give one kind"),
    ("s3://bucket/a.csv --column x", 1, "no place in S3 is allowed here"),
    ("s3://bucket/a --id-column x", 1, "name the column of the inputs too"),
    ("s3://bucket/a --format text --column x", 1, "texts have no columns"),
    ("a.txt -o s3://bucket/a.csv", 2, "results go into a folder"),
    ("a.txt --output-format parquet", 2, "is for S3"),
    ("a.csv --column a", 1, "a.csv, line 5002: 1 fields, where the first row names 2"),
    ("a.jsonl", 1, "line 2"),  # as the api says
]


def test_what_is_wrong_is_refused_and_nothing_is_stored(client: Client) -> None:
    Path("a.txt").write_text("one\n")
    Path("a.csv").write_text("a,b\n" + "1,2\n" * 5000 + "3\n")
    Path("a.jsonl").write_text('"fine"\n{"input": \n')
    before = newest(client)
    for (arguments, status, why), case in each(WRONG):
        with case:
            command = ("submit", "--model", "echo", *arguments.split())
            assert why in run_millrace(*command, status=status).output
    assert newest(client) == before


def test_results_come_in_every_form() -> None:
    id = job_of("a", "b\u2028c\x85d", {"input": {"any": ["json"]}})
    lines = run_millrace("results", id).stdout_bytes.splitlines()
    assert [json.loads(line)["output"] for line in lines] == [
        "a", "b\u2028c\x85d", {"any": ["json"]}
    ]  # fmt: skip
    assert json_of("results", id, "-o", "out.jsonl.gz")["results"] == 3
    assert gzip.decompress(Path("out.jsonl.gz").read_bytes()).splitlines() == lines
    run_millrace("results", id, "--after", "1", "-o", "rest.csv")
    assert Path("rest.csv").read_text().count("\n") == 2


def test_vectors_are_columns_of_numbers_in_parquet(client: Client) -> None:
    id = job_of("a", "b", model="minilm")
    assert "2 results" in run_millrace("results", id, "-o", "out.parquet").stdout
    table = pyarrow.parquet.read_table("out.parquet")
    vectors = [result["output"] for result in client.jobs.results(id, wait=False)]
    assert table["output"].to_pylist() == vectors
    assert len(vectors[0]) == 384


def test_items_are_submitted_again_with_other_terms(client: Client) -> None:
    Path("a.txt").write_text("one\ntwo\n")
    first = json_of("submit", "a.txt", "--model", "echo", "--label", "team=search", "--wait")
    refused = run_millrace("resubmit", first["id"], "--unsuccessful", status=1)
    assert "all items of the job succeeded" in refused.output
    terms = ("--name", "again", "--expires-in-s", "never")
    again = json_of("resubmit", first["id"], *terms, "--wait")
    assert again["expires_at"] is None
    assert (again["name"], again["labels"]) == ("again", {"team": "search"})
    assert (again["state"], again["counts"]["succeeded"]) == ("completed", 2)
    assert client.jobs.get(again["id"]).metadata["resubmitted_from"] == first["id"]


def test_results_of_a_running_job_are_said_to_be_incomplete(paused: str) -> None:
    assert "so far" in run_millrace("results", paused).stderr
    assert "not all there yet" in run_millrace("diff", paused, paused, status=2).output


def test_two_jobs_are_compared() -> None:
    a = job_of({"custom_id": "x", "input": [1.0, 0.0]}, {"custom_id": "y", "input": "same"})
    b = job_of({"custom_id": "y", "input": "same"}, {"custom_id": "x", "input": [1.0, 0.01]})
    assert "2 same" in run_millrace("diff", a, a).stdout
    found = json_of("diff", a, b, status=1)
    assert (found["same"], found["changed"], found["max_abs_diff"]) == (1, 1, 0.01)
    assert json_of("diff", a, b, "--atol", "0.01")["is_same"]
    assert json_of("diff", a, b, "--min-cosine", "0.999")["is_same"]
    assert json_of("diff", a, b, "--by", "seq", status=1)["changed"] == 2
    run_millrace("diff", a, "job_01aryz6s41tsv4rrffq69g5fav", status=2)


def test_without_an_api_it_says_what_to_do() -> None:
    nowhere = ("--url", f"http://127.0.0.1:{free_port()}")
    id = "job_01aryz6s41tsv4rrffq69g5fav"
    assert "millrace up" in run_millrace("diff", id, id, *nowhere, status=2).output
    assert "millrace up" in run_millrace("jobs", *nowhere, status=1).stderr
    assert "not found" in run_millrace("job", id, status=1).stderr.lower()


def looks_at_jobs(platform: Platform) -> float:
    """Requests for one job that the api has answered."""
    said = httpx.get(f"{platform.url}/metrics").raise_for_status().text
    counts = re.findall(
        r'^millrace_http_requests_total\{.*"/jobs/\{job_id\}".*\} (.+)$', said, re.M
    )
    return sum(map(float, counts))


def test_ctrl_c_leaves_the_job_running_and_says_how_to_come_back(
    platform: Platform, client: Client, paused: str
) -> None:
    with interruptible("-m", "ops", "job", paused, "--follow") as following:
        assert following.stderr
        following.stderr.read(1)  # the bar is being drawn
        before = looks_at_jobs(platform)
        eventually(lambda: looks_at_jobs(platform) > before + 1)
        following.send_signal(signal.SIGINT)
        _, said = following.communicate(timeout=PATIENCE_S)
    assert following.returncode == 130
    assert f"`millrace job {paused} --follow`" in said
    assert "Traceback" not in said
    assert client.jobs.get(paused)["state"] == "paused"
    run_millrace("cancel", paused)
    assert "cancelled" in run_millrace("job", paused, "--follow", status=1).stdout


def test_a_reader_that_leaves_ends_it_quietly() -> None:
    id = job_of(*("x" * 100 for _ in range(5000)))
    with interruptible("-m", "ops", "results", id) as printing:
        assert printing.stdout
        assert printing.stderr
        assert json.loads(printing.stdout.readline())["seq"] == 0
        printing.stdout.close()
        assert printing.stderr.read() == ""
        assert printing.wait(PATIENCE_S) != 0


def test_a_job_is_waited_for_while_the_api_restarts(platform: Platform, paused: str) -> None:
    away = threading.Event()

    class Watched(Progress):
        def away(self) -> None:
            away.set()

    api = child_of(platform, "api")

    def resumed() -> bool:
        platform.poll()
        return CliRunner().invoke(main, ["resume", paused]).exit_code == 0

    with closing(Client(platform.url)) as client, ThreadPoolExecutor(1) as pool:
        client.jobs.get(paused)  # an api that was never there is no outage
        waiting = pool.submit(client.jobs.wait, paused, progress=Watched())
        api.kill()
        eventually(away.is_set)
        eventually(resumed)
        assert waiting.result()["state"] == "completed"


def test_a_job_is_deleted() -> None:
    id = job_of("x")
    assert json_of("delete", id) == {"id": id, "deleted": True}
    assert "there is no job" in run_millrace("delete", id, status=1).stderr


def test_lists_go_on_where_the_last_one_ended() -> None:
    ids = [job_of("x") for _ in range(3)]
    first = run_millrace("jobs", "--limit", "2")
    assert [line.split()[0] for line in first.stdout.splitlines()] == ids[:0:-1]
    assert f"--after {ids[1]}" in first.stderr
    assert json_of("jobs", "--limit", "1", "--after", ids[1])["data"][0]["id"] == ids[0]


def test_a_call_takes_json_and_parameters() -> None:
    infer = partial(run_millrace, "infer", "--model", "echo")
    assert json.loads(infer('{"a": [1]}', "--is-json").stdout) == {"a": [1]}
    assert json.loads(infer("[1]").stdout) == "[1]"
    infer("{", "--is-json", status=2)
    assert "nope" in infer("x", "--params", '{"nope": 1}', status=1).output


@pytest.mark.parametrize(
    ("given", "more", "inputs", "read_as"),
    [
        (b'"a"\n{"input": 1}\n', (), ["a", 1], "JSON lines"),
        (b'[\n  "a",\n  {"input": 1}\n]\n', (), ["a", 1], "a JSON document"),
        (b"text\n" * 50, (), ["text"] * 50, "texts, a line each"),
        (b'["a", "b"]\n', ("--format", "json"), ["a", "b"], ""),
        (b'"a"\n', ("--format", "text"), ['"a"'], ""),
    ],
)
def test_the_format_of_standard_input_is_guessed_and_said(
    given: bytes, more: tuple[str, ...], inputs: list[Any], read_as: str
) -> None:
    done = run_millrace("submit", "-", "--model", "echo", "--wait", "--json", *more, input=given)
    results = run_millrace("results", json.loads(done.stdout)["id"]).stdout.splitlines()
    assert [json.loads(line)["output"] for line in results] == inputs
    said = f"standard input is read as {read_as}" if read_as else ""
    assert said in done.stderr
    assert ("standard input" in done.stderr) == bool(said)


def test_what_is_no_id_is_told_how_it_differs_from_one() -> None:
    verbs = ("job", "cancel", "results", "webhooks", "why", "jobs --after")
    differs = {"nope": "begins with job_", "job_nope": "after job_ come 26"}
    for (verb, id), case in each(product(verbs, differs)):
        if (verb, id) == ("why", "nope"):
            continue  # the name of a model
        with case:
            said = run_millrace(*verb.split(), id, status=1).output
            assert f"'{id}' is no id" in said
            assert differs[id] in said


def test_progress_counts_what_failed() -> None:
    lines = b'"x"\n{"input": 5}\n'
    how = ("--model", "batchstring", "--on-invalid", "fail_item", "--wait")
    shown = run_millrace("submit", "-", *how, input=lines).stderr
    assert "2/2" in shown
    assert "1 failed" in shown
