"""The steps of a Dockerfile: how they are read, and done without a daemon."""

from pathlib import Path

import pytest

from tests.image import stages
from tests.image.builders import DOCKERFILE
from tests.image.dockerfile import State, Step, in_context, steps

TOY = """
ARG BASE=nothing
FROM ${BASE} AS first
ARG NAME=toy
ENV GREETING="hello $NAME"
WORKDIR /srv/work
COPY one.txt two/ kept/
# a comment
RUN echo "$GREETING" > said \\
    # within a command
    && cat kept/one.txt kept/deep.txt >> said && chmod a+w . said
FROM ${BASE}
COPY --from=first /srv/work /srv/work
RUN useradd --uid 10002 --no-create-home toy
WORKDIR /srv/work
USER 10002:10002
ARG NAME
LABEL a.name="${NAME}"
ENTRYPOINT ["sh", "-c"]
CMD ["cat said; id -u; touch said || echo refused"]
"""


def test_lines_are_joined_and_comments_left_out() -> None:
    assert list(steps("# no\nFROM a AS b\nRUN one \\\n  # no\n    && two\n")) == [
        Step("FROM", "a AS b"),
        Step("RUN", "one && two"),
    ]


def test_every_step_of_ours_is_known() -> None:
    assert {step.name for step in steps(DOCKERFILE.read_text())} >= {"COPY", "RUN", "USER"}
    with pytest.raises(ValueError, match="ONBUILD is not known"):
        list(steps("ONBUILD RUN true"))


def test_variables_are_those_given_or_set_before() -> None:
    state = State({"PATH": "/bin"})
    for line in ("ARG WHO=me", "ARG HOW=so", "ENV PATH=/opt:$PATH NOTE=${WHO}-$HOW"):
        name, _, rest = line.partition(" ")
        state.apply(Step(name, rest), {"WHO": "you"})
    assert state.variables == {
        "WHO": "you", "HOW": "so", "PATH": "/opt:/bin", "NOTE": "you-so"
    }  # fmt: skip


def test_the_context_is_what_the_last_pattern_leaves() -> None:
    names = ["README.md", "notes.md", "api/a.txt", "api/a.tmp", "ops/docs/x.md", "ops/b.txt"]
    ignored = "# why\n*\n!README.md\n!api\n!ops\nops/docs\n**/*.tmp\n"
    assert in_context(names, ignored) == ["README.md", "api/a.txt", "ops/b.txt"]


@pytest.mark.skipif(bool(stages.lacking()), reason=stages.lacking() or "they can be done here")
def test_steps_are_done_in_a_root_of_their_own(tmp_path: Path) -> None:
    context = tmp_path / "context"
    (context / "two").mkdir(parents=True)
    (context / "one.txt").write_text("one\n")
    (context / "two" / "deep.txt").write_text("deep\n")
    folder = tmp_path / "stages"
    image = stages.build(TOY, context, Path("/"), folder, {"NAME": "me"}, {}, [])
    done = image.start()
    assert done.stdout.split() == ["hello", "me", "one", "deep", "10002", "refused"]
    assert "Read-only file system" in done.stderr
    assert image.state.labels == {"a.name": "me"}
    assert image.start("exit 3").returncode == 3
    assert not Path("/srv/work").exists()
