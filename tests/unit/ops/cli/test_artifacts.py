from pathlib import Path

import pytest

from tests.support import signing
from tests.support.command_line import run_millrace


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return signing.write_tree(tmp_path / "model", {"config.json": b"{}", "a/w.bin": b"1234"})


def test_a_signed_folder_is_verified_and_what_was_changed_refused(
    model: Path, tmp_path: Path
) -> None:
    key = signing.make_key()
    private = signing.write(tmp_path / "key.pem", signing.private_pem(key))
    trust = signing.write_trust(tmp_path / "trust", key, policy="off")
    verify = ("model", "verify", str(model), "--trust", str(trust))
    run_millrace("model", "sign", str(model), "--key", str(private))
    assert "signed by release" in run_millrace(*verify).output
    (model / "extra.py").write_text("pass\n")
    refused = run_millrace(*verify, status=1)
    assert "extra.py are not in what the key 'release' signed" in refused.output
    _, leaf = signing.Authority.create("root").issue("signer")
    private = signing.write(tmp_path / "key.pem", signing.private_pem(signing.make_key()))
    certificate = signing.write(tmp_path / "leaf.pem", signing.certificate_pem(leaf))
    words = ("--key", str(private), "--certificate", str(certificate))
    refused = run_millrace("model", "sign", str(model), *words, status=1)
    assert "is not the certificate of" in refused.output
