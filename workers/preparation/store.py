"""Bytes of prepared inputs, between the worker that prepared them and the one that launches them.

Large ones go to the blob store, where there is one, all others to Redis, for an hour. Places: as
references of payloads (`@key sha256 bytes`), or a key of Redis. Keys hold a hash of the bytes: a
worker that has lost its lease changes nothing that anybody refers to. What is gone is prepared
again.
"""

import logging
from collections.abc import Sequence
from hashlib import sha256
from uuid import UUID

from redis import Redis, RedisError

from jobs.blobs.payloads import REFERENCE_MARK, Payloads
from jobs.errors import BlobStoreUnavailable

_log = logging.getLogger(__name__)
_TTL_S = 3600  # in Redis; paused jobs may outlast it


class PreparedStore:
    """Prepared inputs of all jobs. payloads: the blob store, and from what size on it is used."""

    def __init__(self, redis: "Redis", payloads: Payloads) -> None:
        self._redis, self._payloads = redis, payloads

    def put(self, items: Sequence[tuple[UUID, int, bytes]]) -> list[str]:
        """Stores bytes of items, by job and seq; returns their places. Raises RedisError and
        BlobStoreUnavailable: some may be stored then."""
        over = self._payloads.over_bytes
        stashes = {
            job: self._payloads.stash("pre", job) for job, _, raw in items if len(raw) > over
        }
        places, small = list[str](), dict[str, bytes]()
        for job, seq, raw in items:
            if len(raw) > over:
                places.append(stashes[job].add(seq, raw))
            else:
                key = f"millrace:prepared:{job.hex}/{seq}-{sha256(raw).hexdigest()[:16]}"
                small[key] = raw
                places.append(key)
        if small:
            with self._redis.pipeline(transaction=False) as steps:
                for key, raw in small.items():
                    steps.set(key, raw, ex=_TTL_S)
                steps.execute()
        for stash in stashes.values():
            stash.finish()
        return places

    def read(self, places: Sequence[str]) -> list[bytes | None]:
        """Returns the bytes at these places; None where they are gone, or can't be reached."""
        found: dict[str, bytes | None] = dict.fromkeys(places)
        keys = [place for place in found if not place.startswith(REFERENCE_MARK)]
        blobs = [place for place in found if place.startswith(REFERENCE_MARK)]
        try:
            if keys:
                with self._redis.pipeline(transaction=False) as steps:
                    for key in keys:
                        steps.get(key)
                    found.update(zip(keys, steps.execute(), strict=True))
        except RedisError as error:
            _log.warning("prepared inputs can't be read from Redis: %s", error)
        try:
            for place, raw in zip(blobs, self._payloads.read_all(blobs), strict=True):
                found[place] = raw if isinstance(raw, bytes) else None
        except BlobStoreUnavailable as error:
            _log.warning("prepared inputs can't be read: %s", error)
        return [found[place] for place in places]

    def delete(self, places: Sequence[str]) -> None:
        """Deletes what is at these places. Raises RedisError, BlobStoreUnavailable."""
        keys = [place for place in places if not place.startswith(REFERENCE_MARK)]
        if keys:
            with self._redis.pipeline(transaction=False) as steps:
                for key in keys:
                    steps.unlink(key)
                steps.execute()
        self._payloads.delete([place for place in places if place.startswith(REFERENCE_MARK)])
