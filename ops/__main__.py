"""`python -m ops` is the command `millrace`."""

from ops.cli.main import main

if __name__ == "__main__":
    main(prog_name="millrace")  # as the completion of shells knows it
