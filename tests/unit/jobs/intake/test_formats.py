"""Formats of what is pasted: the guess, and texts as items."""

from io import BytesIO

from jobs.intake.formats import guess, read_head, text_lines
from tests.support.cases import each


def test_the_format_of_what_has_no_name_is_guessed() -> None:
    cases = [
        (b"", "jsonl"),
        (b'"a"\n"b"\n', "jsonl"),
        (b'\n{"input": 1}\n{"input": \n', "jsonl"),  # the api names the line
        (b'{"input: 1}\nx\n', "jsonl"),
        (b"1\n2\n", "jsonl"),
        (b"[1, 2]\n", "jsonl"),  # an input may be a list
        (b'[\n "a",\n "b"\n]\n', "json"),
        (b'{\n "messages": [{"role": "us', "json"),
        (b'[{"input": 1},\n {"input": 2}]', "json"),
        (b"a text\nanother\n", "text"),
        (b"1\ntwo\n", "text"),
        (b"[1] A footnote\n[2] Another\n", "text"),
        (b'"Hello," she said.\n', "text"),
        ("\xe9\n".encode("latin-1"), "text"),
    ]
    for (content, found), case in each(cases):
        with case:
            assert guess(content.splitlines(keepends=True)) == found


def test_the_head_of_a_file_is_bounded_and_each_line_of_a_text_is_an_item() -> None:
    assert read_head(BytesIO(b"a\nb\n")) == [b"a\n", b"b\n"]
    long = BytesIO(b"x" * 300_000)
    assert sum(map(len, read_head(long, 1000))) < 70_000
    lines = [b'say "hi"\r\n', "\xe9\n".encode(), b"\n", None, b"\xff\n", b"last"]
    assert list(text_lines(lines)) == [
        b'"say \\"hi\\""', '"\xe9"'.encode(), b'""', None, b"\xff", b'"last"'
    ]  # fmt: skip
