"""The message and its signatures, as the Standard Webhooks specification has them."""

import base64
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from jobs.encryption import DecryptionError, decrypt, encrypt
from jobs.usecases import webhook_messages

KEY = "a secret key of 32 characters and more"


def test_the_published_vector_reproduces() -> None:
    secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    signed = webhook_messages.signature(secret, id, 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_while_a_secret_rotates_the_reference_package_verifies_with_either() -> None:
    new, old, other = (webhook_messages.new_secret() for _ in range(3))
    body = '{"type": "job.completed", "text": "é"}'.encode()
    now = int(datetime.now(UTC).timestamp())
    headers = webhook_messages.headers("msg_1", now, body, [new, old])
    assert len(headers["webhook-signature"].split(" ")) == 2
    for secret in (new, old):
        assert Webhook(secret).verify(body, headers) == json.loads(body)
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(body + b" ", headers)


def test_a_secret_has_as_many_bytes_as_the_specification_asks() -> None:
    secret = webhook_messages.new_secret()
    assert secret.startswith("whsec_")
    assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"))) <= 64
    assert secret != webhook_messages.new_secret()


def test_a_sealed_secret_opens_for_its_owner_and_its_key_alone() -> None:
    sealed = encrypt(KEY, "a", "whsec_x")
    assert b"whsec" not in sealed
    assert sealed != encrypt(KEY, "a", "whsec_x")
    assert decrypt(KEY, "a", sealed) == "whsec_x"
    for key, owner, found in (
        (KEY + "!", "a", sealed),
        (KEY, "b", sealed),
        (KEY, "a", sealed[:-1] + bytes([sealed[-1] ^ 1])),
    ):
        with pytest.raises(DecryptionError):
            decrypt(key, owner, found)
