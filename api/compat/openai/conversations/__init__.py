"""OpenAI's Conversations API, under /v1/conversations."""
