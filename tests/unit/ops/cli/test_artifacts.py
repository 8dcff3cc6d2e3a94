from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ops.cli.main import main
from tests.support import signing


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", {"config.json": b"{}", "a/w.bin": b"1234"})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["model", *map(str, arguments)])


def test_a_signed_folder_is_verified_and_a_changed_one_refused(model: Path, tmp_path: Path) -> None:
    key = signing.make_key()
    private = signing.write(tmp_path / "key.pem", signing.private_pem(key))
    trust = signing.write_trust(tmp_path / "trust", key, policy="off")
    assert run("sign", model, "--key", private).exit_code == 0
    verified = run("verify", model, "--trust", trust)
    assert (verified.exit_code, "signed by release" in verified.output) == (0, True)
    (model / "extra.py").write_text("pass\n")
    refused = run("verify", model, "--trust", trust)
    assert refused.exit_code == 1
    assert "extra.py are not in what the key 'release' signed" in refused.output


def test_a_certificate_of_another_key_is_refused(model: Path, tmp_path: Path) -> None:
    _, leaf = signing.Authority.create("root").issue("signer")
    private = signing.write(tmp_path / "key.pem", signing.private_pem(signing.make_key()))
    certificate = signing.write(tmp_path / "leaf.pem", signing.certificate_pem(leaf))
    refused = run("sign", model, "--key", private, "--certificate", certificate)
    assert refused.exit_code == 1
    assert "is not the certificate of" in refused.output
