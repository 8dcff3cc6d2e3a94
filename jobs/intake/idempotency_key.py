"""Idempotency keys: their syntax, and a request's claim on its key.

draft-ietf-httpapi-idempotency-key-header: the field is an Item of Structured Fields (RFC 9651)
whose value is a String. Many clients send a bare key, for example a UUID: it is accepted too.
"""

import re
from dataclasses import dataclass

from jobs.errors import Malformed, MillraceError

MAX_LENGTH = 1024  # characters of a key; RFC 9651 asks parsers to support as many

_IN_STRING = r'(?:[ !#-\[\]-~]|\\["\\])'
# Visible ASCII without what makes it a broken String, a list or parameters.
_IN_BARE = r"[!#-&(-+\--:<-\[\]-~]"
PATTERN = rf'^("{_IN_STRING}{{0,{MAX_LENGTH}}}"|{_IN_BARE}{{1,{MAX_LENGTH}}})$'
"""Syntax of the header, for documentation."""

_STRING = f'"{_IN_STRING}*"'
_VALUE = rf"{_STRING}|[A-Za-z*][\w!#-'*+.^`|~:/-]*|-?\d+(?:\.\d+)?|:[\w+/=]*:|\?[01]|@-?\d+"
_PARAMETERS = rf"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:{_VALUE}))?)*"  # allowed, and without a meaning
_ITEM = re.compile(rf" *({_STRING}){_PARAMETERS} *", re.ASCII)
_BARE = re.compile(rf" *({_IN_BARE}+) *")
_ESCAPED = re.compile(r'\\(["\\])')


class JobDeleted(MillraceError):
    """The job that an Idempotency-Key made was deleted; the key is kept until it lapses."""

    status, code, title = 410, "job_deleted", "The job of this Idempotency-Key was deleted"

    def __init__(self) -> None:
        super().__init__(
            "the request under this Idempotency-Key made a job that was deleted since; to make "
            "another job, send a new key"
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """One request under a key."""

    tenant: str
    key: str
    fingerprint: bytes  #: SHA-256 over all parts of the request that matter


def kept_under(tenant: str, key: str) -> str:
    """Returns the Redis key of a call's stored response; unique, since keys have no line break."""
    return f"millrace:answer:{tenant}\n{key}"


def version_key(tenant: str, key: str) -> str:
    """Returns the Redis key of the version that first took a call."""
    return f"{kept_under(tenant, key)}\nversion"


def parse_key(field: str) -> str:
    """Returns the key in a field's value. Raises Malformed."""
    if string := _ITEM.fullmatch(field):
        key = _ESCAPED.sub(r"\1", string[1][1:-1])
    elif bare := _BARE.fullmatch(field):
        key = bare[1]
    else:
        raise Malformed(
            'the Idempotency-Key can\'t be read; send printable ASCII in double quotes ("…", with '
            '\\" and \\\\ for a quote and a backslash in it), or bare, without spaces, quotes, '
            "commas, semicolons and backslashes"
        )
    if len(key) > MAX_LENGTH:
        raise Malformed(
            f"the Idempotency-Key has {len(key)} characters; it has at most {MAX_LENGTH}"
        )
    return key
