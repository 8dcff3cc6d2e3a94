"""Signing in at an identity provider."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from ops.supervisor.platform import Platform
from tests.browser.chromium import Watched
from tests.browser.conftest import Sign
from tests.support.platforms import Platforms
from tests.support.servers.identity_provider import CLIENT, IdentityProvider
from tests.support.servers.identity_provider import running as provider_running

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with provider_running() as found:
        yield found


@pytest.fixture(scope="module")
def platform(
    browser: Browser, provider: IdentityProvider, platforms: Platforms
) -> Iterator[Platform]:
    named = provider.named() | {"oidc_client_id": CLIENT}
    with platforms.running(**named) as started:
        yield started


@pytest.fixture
def window(opened: Sign, provider: IdentityProvider) -> Watched:
    found = opened()
    found.others.add(provider.issuer)
    return found


def test_whoever_the_provider_knows_gets_in(window: Watched, provider: IdentityProvider) -> None:
    provider.signs_in = {"tenant": "globex", "role": "operator", "sub": "ann"}
    page = window.go("/dashboard/workers")
    page.get_by_role("link", name="Sign in with your organization").click()
    expect(page).to_have_url(f"{window.url}/dashboard/workers")
    expect(page.get_by_role("banner")).to_contain_text("globex")
    expect(page.get_by_role("heading", name="Workers", exact=True)).to_be_visible()


def test_who_has_no_tenant_here_is_told_so(window: Watched, provider: IdentityProvider) -> None:
    provider.signs_in = {"tenant": None}
    window.forgive("status of 403")
    page = window.go("/dashboard")
    page.get_by_role("link", name="Sign in with your organization").click()
    expect(page.get_by_role("alert")).to_contain_text("no tenant or role")


def test_an_answer_to_another_sign_in_is_refused(
    window: Watched, provider: IdentityProvider
) -> None:
    provider.signs_in = {"tenant": "globex"}
    window.forgive("status of 401")
    page = window.go("/dashboard/sign-in/back?code=x&state=y")
    expect(page.get_by_role("alert")).to_contain_text("expired")
    provider.signs_in = {"tenant": "globex", "nonce": "another"}
    window.forgive("status of 403")
    window.go("/dashboard")
    page.get_by_role("link", name=re.compile("organization")).click()
    expect(page.get_by_role("alert")).to_contain_text("belongs to another sign-in")
