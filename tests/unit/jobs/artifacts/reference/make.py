"""Makes the files beside it: a folder signed by OpenSSF's own implementation.

    pip install model-signing pyopenssl  # in an environment of its own
    python make.py

The keys are made for these files and thrown away.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography.hazmat.primitives.asymmetric import ec

HERE = Path(__file__).parent
ROOT = HERE.parents[4]
MODEL = HERE / "model"
FILES = {
    "config.json": b'{"layers": 1}\n',
    "a.txt": b"sorted after a/b.bin: by parts\n",
    "a/b.bin": bytes(range(256)),
    "code/load.py": b"def load():\n    return None\n",
    ".gitattributes": b"*.bin binary\n",  # not signed, and no part of the artifact
}


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.support import signing

    for name, content in FILES.items():
        path = MODEL / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for curve in (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()):
            key = ec.generate_private_key(curve)
            (HERE / f"key-{curve.key_size}.pub").write_bytes(signing.public_pem(key))
            private = signing.write(folder / "key", signing.private_pem(key))
            sign("key", f"key-{curve.key_size}", "--private_key", private)
        authority = signing.Authority.create("root")
        between = authority.issue_authority("between")
        key, leaf = between.issue("signer")
        signing.write(HERE / "ca.pem", authority.pem)
        certificate = signing.write(folder / "leaf.pem", signing.certificate_pem(leaf))
        chain = signing.write(folder / "between.pem", between.pem)
        private = signing.write(folder / "key", signing.private_pem(key))
        more = "--signing_certificate", certificate, "--certificate_chain", chain
        sign("certificate", "certificate", "--private_key", private, *more)


def sign(method: str, name: str, *options: Path | str) -> None:
    tool = Path(sys.executable).with_name("model_signing")
    signature = HERE / f"{name}.sig"
    subprocess.run([tool, "sign", method, MODEL, "--signature", signature, *options], check=True)


if __name__ == "__main__":
    main()
