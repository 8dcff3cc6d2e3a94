"""Generator over an OpenAI-compatible server: chats that it streams."""
