"""Pure ASGI layers around the app: trace, count, fast path of calls."""
