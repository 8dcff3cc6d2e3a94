"""Navigation of the site, and links to pages that stand outside its folder."""

from ops.site.navigation import navigation
from ops.site.outside import page_inside, with_links_inside


def test_pages_stand_in_their_room_by_title_and_its_index_first() -> None:
    pages = {
        "index.md": "# Millrace\n",
        "how-to/clients/z.md": "# `a` is first\n",
        "how-to/clients/a.md": "# Z is last\n",
        "how-to/cookbook.md": "# Cookbook\n",
        "decisions/calls.md": "# A decision\n",
        "decisions/index.md": "# Z: all decisions\n",
    }
    rooms = {name: entries for room in navigation(pages) for name, entries in room.items()}
    assert rooms["Home"] == ["index.md"]
    clients = ["how-to/clients/z.md", "how-to/clients/a.md"]
    assert rooms["How to"] == ["how-to/cookbook.md", {"Clients": clients}]
    assert rooms["Decisions"] == ["decisions/index.md", "decisions/calls.md"]


def test_a_page_outside_leads_to_pages_inside() -> None:
    text = page_inside("README.md")
    assert "](reference/client.md)" in text
    assert "](changes.md)" in text
    assert "ops/docs/" not in text


def test_links_to_pages_outside_lead_to_their_pages_on_the_site() -> None:
    text = "[a](../../../../README.md#a-call) [b](openai.md#x) [c](https://example.com/README.md)"
    found = with_links_inside(text, "how-to/clients/oip.md")
    assert (
        found == "[a](../../readme.md#a-call) [b](openai.md#x) [c](https://example.com/README.md)"
    )
