"""The message and its signatures, as the Standard Webhooks specification has them."""

import base64
import json
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from jobs.usecases import webhook_messages


def test_the_published_vector_reproduces_and_a_secret_is_as_long_as_the_specification_asks() -> (
    None
):
    secret, id = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek"
    signed = webhook_messages.signature(secret, id, 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    secret = webhook_messages.new_secret()
    assert secret.startswith("whsec_")
    assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"))) <= 64
    assert secret != webhook_messages.new_secret()


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
