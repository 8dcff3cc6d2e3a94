"""A browser and a platform for each module, a fresh profile for each test."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser import chromium
from tests.browser.chromium import Watched
from tests.support.keys import make_key_at
from tests.support.platforms import Platforms
from tests.support.wait import PATIENCE_S

SCREENSHOTS = os.environ.get("MILLRACE_SCREENSHOTS")
_COLOURS = 224

expect.set_options(timeout=1000 * PATIENCE_S)  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with its module: beside Playwright's event loop no other test may run one."""
    if why := chromium.missing():
        pytest.skip(why)
    with chromium.running() as found:
        yield found


@pytest.fixture(scope="module")
def platform(
    browser: Browser, request: pytest.FixtureRequest, platforms: Platforms
) -> Iterator[Platform]:
    """The platform that the module declares as PLATFORM; none where there is no browser."""
    with platforms.shared(request.module.PLATFORM) as found:
        yield found


Key = Callable[..., tuple[str, str]]
Sign = Callable[..., Watched]


@pytest.fixture
def key(platform: Platform) -> Key:
    """Makes one: (the key, its id)."""

    def make(tenant: str = "acme", **more: object) -> tuple[str, str]:
        return make_key_at(platform.settings.database_url, tenant, **more)

    return make


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[Client]:
    """A client of an admin of acme's."""
    made, _ = make_key_at(platform.settings.database_url, "acme", role="admin")
    with closing(Client(platform.url, made)) as client:
        yield client


@pytest.fixture
def window(signed_in: Sign) -> Watched:
    return signed_in("admin")


@pytest.fixture
def opened(browser: Browser, platform: Platform) -> Iterator[Sign]:
    """Opens a window of a profile of its own; checked at the end."""
    contexts, pages = [], []

    def make(
        url: str = "", width: int = 1280, scheme: str = "light", scripts: bool = True
    ) -> Watched:
        context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,  # type: ignore[arg-type]
            java_script_enabled=scripts,
        )
        context.set_default_timeout(1000 * PATIENCE_S)
        contexts.append(context)
        pages.append(Watched(context.new_page(), url or platform.url))
        return pages[-1]

    yield make
    for context in contexts:
        context.close()
    for page in pages:
        page.check()


@pytest.fixture
def signed_in(opened: Sign, key: Key) -> Sign:
    """The same, signed in with a key of that role."""

    def make(role: str = "admin", tenant: str = "acme", **more: object) -> Watched:
        made, _ = key(tenant, role=role)
        window = opened(**more)
        sign_in(window, made)
        return window

    return make


def sign_in(window: Watched, key: str) -> None:
    """Signs in by the form, wherever the window goes then."""
    page = window.page
    if "/dashboard/sign-in" not in page.url:
        window.go("/dashboard/sign-in")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in", exact=True).click()


def for_everybody(window: Watched, name: str) -> None:
    """The page is accessible and no wider than the window: light and dark, and on a narrow screen.

    name: of its screenshots."""
    for scheme in ("light", "dark"):
        window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        window.accessible()
        window.fits()
        screenshot(window, f"{name}-{scheme}")
    window.page.set_viewport_size({"width": 390, "height": 800})
    for scheme in ("dark", "light"):
        window.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        window.accessible()
    window.fits()
    window.page.set_viewport_size({"width": 360, "height": 800})
    window.fits()


def screenshot(window: Watched, name: str) -> None:
    """Kept where MILLRACE_SCREENSHOTS says, in few colours: pages have no more."""
    if not SCREENSHOTS:
        return
    from PIL import Image

    Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
    with Image.open(BytesIO(window.page.screenshot())) as taken:
        few = taken.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
        few.save(Path(SCREENSHOTS) / f"{name}.png", optimize=True)
