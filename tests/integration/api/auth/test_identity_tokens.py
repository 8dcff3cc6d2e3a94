"""Who is recognized by an identity provider's token, and for how long."""

import pytest
from sqlalchemy import Engine

from api.auth import oidc
from api.auth.authenticator import Authenticator
from jobs import clock
from jobs.errors import Unauthenticated, Unavailable
from jobs.identity import Caller
from jobs.settings import Settings
from jobs.store.tenants import tenants
from tests.support.credentials import becomes, on, who
from tests.support.keys import make_key
from tests.support.servers.identity_provider import running


def test_tokens_of_an_identity_provider_stand_for_who_they_say(
    database: Engine, settings: Settings
) -> None:
    with database.begin() as tx:
        tenants.put(tx, "acme", weight=3.0, soft_cap=None, hard_cap=None)
    key, id = make_key(database, "beta")

    with running() as provider:

        async def test(credentials: Authenticator) -> None:
            found = await who(credentials, provider.token(role="operator", scope="read operate"))
            scopes = frozenset({"read", "operate"})
            assert found == Caller("acme", "operator", scopes, "oidc:somebody", 3.0)
            assert await who(credentials, provider.token(aud="another")) is None
            assert (of_key := await who(credentials, key))
            assert of_key.actor == id

        on(provider.settings(settings), test)


def test_with_an_identity_provider_nobody_is_let_in_without_a_credential(
    settings: Settings,
) -> None:
    async def test(credentials: Authenticator) -> None:
        with pytest.raises(Unauthenticated):
            await credentials.authenticate([])

    with running() as provider:
        on(provider.settings(settings), test)


def test_a_token_counts_until_its_end_and_not_longer(settings: Settings) -> None:
    with running() as provider:

        async def test(credentials: Authenticator) -> None:
            token = provider.token(exp=int(clock.now().timestamp()) + 2)
            assert await who(credentials, token)
            await becomes(credentials, token, lambda caller: caller is None, 3)

        on(provider.settings(settings), test)


def test_while_the_providers_keys_are_away_known_tokens_go_on_and_others_may_come_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "_KEYS_S", 0.01)
    with running() as provider:

        async def test(credentials: Authenticator) -> None:
            known = provider.token()
            assert await who(credentials, known)
            provider.broken = True
            credentials.forget("")
            assert await who(credentials, known)
            with pytest.raises(Unavailable):
                await who(credentials, provider.token(sub="another"))

        on(provider.settings(settings), test)
