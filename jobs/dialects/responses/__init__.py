"""The Responses API, pure: from requests to generation inputs, from outputs to responses."""
