"""/docs needs nobody but us: no foreign host, no script in the page, on any address."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from starlette.testclient import TestClient

from api.app import create_app
from jobs.settings import Settings

BASE = "http://millrace.test"


class References(HTMLParser):
    """urls: all that the page loads. inline: its scripts and styles that are in the page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.urls: list[str] = []
        self.inline: list[str] = []
        self._within = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._within = tag
        for name, value in attrs:
            if name in ("src", "href") and value:
                self.urls.append(value)
            elif name == "style" or name.startswith("on"):
                self.inline.append(f"{name}={value}")

    def handle_data(self, data: str) -> None:
        if self._within in ("script", "style") and data.strip():
            self.inline.append(data)


@pytest.fixture(scope="module", params=["127.0.0.1", "0.0.0.0"])
def http(request: pytest.FixtureRequest) -> Iterator[TestClient]:
    app = create_app(Settings(host=request.param))
    client = TestClient(app, base_url=BASE)  # the pages need nothing that a lifespan starts
    yield client
    client.close()


def test_all_that_the_page_loads_is_served_here_and_its_policy_lets_nothing_else_in(
    http: TestClient,
) -> None:
    page = http.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    found = References(page.text)
    assert found.inline == []
    assert len(found.urls) == 4
    for url in (*found.urls, "/openapi.json"):
        assert urlsplit(urljoin(BASE, url)).netloc == urlsplit(BASE).netloc
        assert http.get(url).status_code == 200, url
    assert '"/openapi.json"' in http.get("/docs/start.js").text
    policy = page.headers["content-security-policy"]
    assert "://" not in policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert (rules["default-src"], rules["script-src"]) == ("'none'", "'self'")
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"


def test_parts_have_the_types_that_nosniff_asks_for_and_load_nothing(http: TestClient) -> None:
    urls = References(http.get("/docs").text).urls
    assert {url: http.get(url).headers["content-type"] for url in urls} == {
        "/docs/favicon-32x32.png": "image/png",
        "/docs/swagger-ui.css": "text/css; charset=utf-8",
        "/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8",
        "/docs/start.js": "text/javascript; charset=utf-8",
    }
    loaded = re.findall(r"url\(\s*[\"']?([^\"')]*)", http.get("/docs/swagger-ui.css").text)
    assert [url for url in loaded if not url.startswith("data:")] == []
    assert http.get("/redoc").status_code == 404
