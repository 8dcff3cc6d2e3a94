"""Values of request fields that have a form of their own: texts, tokens and biases."""

from typing import Any

from jobs.models.inputs.fields import FieldError, Fields

MOST_STOPS = 16
MOST_TOKEN_IDS = MOST_BAD_WORDS = 128
LONGEST_STOP = 256  # characters
LONGEST_SALT = 1024  # characters
_SHOWN = 100  # characters of a client's text in an error
_ID_DIGITS = 9  # of a token id
_MOST_NAMED = 5  # of what is wrong, in an error


def logit_bias(value: Any) -> dict[int, float]:
    """Reads biases by token id. Raises FieldError."""
    wanted = "must be an object of token ids and numbers from -100 to 100"
    if not isinstance(value, dict | None):
        raise FieldError("logit_bias", wanted)
    read = {}
    if wrong := [token for token in value or () if not _is_token_id(token)]:
        named = ", ".join(repr(token[:_SHOWN]) for token in wrong[:_MOST_NAMED])
        are = "is no token id" if len(wrong) == 1 else "are no token ids"
        raise FieldError("logit_bias", f"{wanted}; {named} {are}")
    for token, bias in (value or {}).items():
        if type(bias) not in (int, float) or not -100 <= bias <= 100:
            raise FieldError("logit_bias", f"{wanted}; that of {token} isn't")
        read[int(token)] = float(bias)
    return read


def _is_token_id(token: str) -> bool:
    return token.isascii() and token.isdigit() and len(token) <= _ID_DIGITS


def stop(value: Any) -> tuple[str, ...]:
    """Reads strings that end a text. Raises FieldError."""
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or len(texts) > MOST_STOPS:
        raise FieldError("stop", f"must be a text or a list of up to {MOST_STOPS} texts")
    if not all(isinstance(text, str) and 1 <= len(text) <= LONGEST_STOP for text in texts):
        raise FieldError("stop", f"must have texts of 1 to {LONGEST_STOP} characters")
    return tuple(texts)


def cache_salt(value: Any) -> str:
    """Reads what divides the prefix cache. Raises FieldError."""
    if value is None:
        return ""
    if not isinstance(value, str) or not 1 <= len(value) <= LONGEST_SALT:
        raise FieldError("cache_salt", f"must be a text of 1 to {LONGEST_SALT:,} characters")
    return value


def bad_words(value: Any) -> tuple[str, ...]:
    """Reads texts that don't come. Raises FieldError."""
    texts = value or []
    if not isinstance(texts, list) or len(texts) > MOST_BAD_WORDS:
        raise FieldError("bad_words", f"must be a list of up to {MOST_BAD_WORDS} texts")
    if not all(isinstance(one, str) and one.strip() and len(one) <= LONGEST_STOP for one in texts):
        raise FieldError("bad_words", f"must have texts of 1 to {LONGEST_STOP} characters")
    return tuple(texts)


def token_ids(fields: Fields, name: str) -> tuple[int, ...]:
    """Reads a list of tokens. Raises FieldError."""
    tokens = fields.get(name) or []
    if not isinstance(tokens, list) or len(tokens) > MOST_TOKEN_IDS:
        raise FieldError(name, f"must be a list of up to {MOST_TOKEN_IDS} token ids")
    if not all(type(token) is int and token >= 0 for token in tokens):
        raise FieldError(name, "must be a list of token ids")
    return tuple(tokens)
