"""Site of the pages: what MkDocs lacks to build one from `ops/docs` (`make docs`).

hooks       events of MkDocs, which ops/mkdocs.yml names
navigation  rooms and their pages
outside     README and others, which stand outside the folder of pages
operations  pages of the API's operations, from the OpenAPI document
schemas     page of the API's schemas, from the same
"""
