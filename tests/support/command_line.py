"""Commands of `millrace`, run in the process of the test: a process of its own takes a second."""

from click.testing import CliRunner, Result

from ops.cli.main import main


def run_millrace(*arguments: str, input: bytes = b"", status: int = 0, **environ: str) -> Result:
    """Runs a command and checks its exit status; environ: environment variables besides ours."""
    done = CliRunner().invoke(main, arguments, input=input, env=environ)
    assert done.exit_code == status, (done.output, done.exception)
    return done
