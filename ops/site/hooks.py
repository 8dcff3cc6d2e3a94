"""Events of MkDocs: pages that are made at build time are added, and the navigation is set."""

import json

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from api.app import create_app
from jobs.settings import Settings
from ops.site.navigation import navigation
from ops.site.operations import FOLDER, reference
from ops.site.outside import OUTSIDE, page_inside, with_links_inside


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds README and its like, and the reference of the API; sets the navigation."""
    document = create_app(Settings()).openapi()
    made = reference(document) | {name: page_inside(path) for name, path in OUTSIDE.items()}
    made[f"{FOLDER}/openapi.json"] = json.dumps(document)
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    config.nav = navigation(pages)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to README and its like to their pages."""
    return with_links_inside(markdown, page.file.src_uri)
