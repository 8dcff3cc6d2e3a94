"""OpenAPI document and Swagger page."""
