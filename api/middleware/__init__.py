"""ASGI layers around the application: fast path of calls, metrics, tracing."""
