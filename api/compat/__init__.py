"""Routes that other services' clients know: OpenAI, Anthropic, Open Inference Protocol."""
