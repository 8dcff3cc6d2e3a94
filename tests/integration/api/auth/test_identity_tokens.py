"""Who is recognized by an identity provider's token, and for how long."""

from collections.abc import AsyncIterator, Callable

import pytest
from sqlalchemy import Engine

from api.auth import oidc
from api.auth.authenticator import Authenticator
from jobs import clock
from jobs.errors import Unauthenticated, Unavailable
from jobs.identity import Caller
from jobs.settings import Settings
from jobs.store.tenants import tenants
from tests.support.credentials import authenticating, is_refused, who
from tests.support.keys import make_key
from tests.support.servers.identity_provider import IdentityProvider, running
from tests.support.stores.transactions import transact

pytestmark = pytest.mark.anyio

Trusted = tuple[IdentityProvider, Authenticator]


@pytest.fixture
async def trusted(settings: Settings) -> AsyncIterator[Trusted]:
    """An identity provider, and an Authenticator that knows it."""
    with running() as provider:
        async with authenticating(provider.settings(settings)) as auth:
            yield provider, auth


async def test_tokens_of_a_provider_stand_for_who_they_say(
    database: Engine, trusted: Trusted
) -> None:
    provider, auth = trusted
    with pytest.raises(Unauthenticated):  # nobody enters without a credential
        await auth.authenticate([])
    transact(database, tenants.put, "acme", weight=3.0, soft_cap=None, hard_cap=None)
    key, id = make_key(database, "beta")
    found = await who(auth, provider.token(role="operator", scope="read operate"))
    scopes = frozenset({"read", "operate"})
    assert found == Caller("acme", "operator", scopes, "oidc:somebody", 3.0)
    assert await who(auth, provider.token(aud="another")) is None
    assert (of_key := await who(auth, key))
    assert of_key.actor == id


async def test_a_token_counts_until_its_end_and_not_longer(
    only_told: None, trusted: Trusted, advance: Callable[[float], None]
) -> None:
    provider, auth = trusted
    token = provider.token(exp=int(clock.now().timestamp()) + 3600)
    assert await who(auth, token)
    advance(3000)
    assert await who(auth, token)
    advance(600)
    await is_refused(auth, token)


async def test_while_the_providers_keys_are_away_known_tokens_go_on_and_others_may_come_again(
    trusted: Trusted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_KEYS_S", 0.01)
    provider, auth = trusted
    known = provider.token()
    assert await who(auth, known)
    provider.broken = True
    auth.forget("")
    assert await who(auth, known)
    with pytest.raises(Unavailable):
        await who(auth, provider.token(sub="another"))
