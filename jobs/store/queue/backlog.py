"""Work that waits to be claimed."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import text

from jobs.models.model import Model
from jobs.store import queries
from jobs.store.db import Tx

# Written out, all three, to look once into the index for each model, whatever the statistics say.

# One look at the index of suspects for each model.
_SUSPECTS = text("""
    SELECT EXISTS (
        SELECT 1 FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[]))
                          AS wanted (model, version)
        JOIN slices USING (model, version)
        WHERE state = 'ready' AND suspect AND not_before <= now()
    )
""")


def suspects_wait(tx: Tx, models: Iterable[Model]) -> bool:
    """Returns True if any suspect slice of these models can be claimed now."""
    return bool(tx.scalar(_SUSPECTS, model_arrays(models)))


# Counts in the order of the indexes: any other plan may walk a million slices that are done.
_CLAIMABLE = text("""
    SELECT wanted.model || '@' || wanted.version, found.count
    FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[])) AS wanted (model, version),
         LATERAL (
             SELECT count(*) FROM (
                 (SELECT 1 FROM slices
                  WHERE state = 'ready' AND NOT suspect AND slices.model = wanted.model
                    AND slices.version = wanted.version AND not_before <= now()
                  ORDER BY tenant_id, priority DESC, due_at, job_id, start LIMIT :most)
                 UNION ALL
                 (SELECT 1 FROM slices
                  WHERE state = 'ready' AND suspect AND slices.model = wanted.model
                    AND slices.version = wanted.version AND not_before <= now()
                  ORDER BY tenant_id, priority DESC, due_at, job_id, start LIMIT :most)
                 LIMIT :most
             ) AS counted
         ) AS found
""")


def claimable(tx: Tx, models: Iterable[Model], most: int) -> dict[str, int]:
    """Counts slices that can be claimed now, by name@version, up to `most` each."""
    return queries.pairs(tx, _CLAIMABLE, model_arrays(models) | {"most": most})


# Leased slices may come back; held ones belong to a paused job. One look at an index for each
# state: EXISTS, which drops ORDER BY and LIMIT, may read all slices of the other models.
_ANY_READY = """(SELECT true FROM slices s
                 WHERE s.state = 'ready' AND {suspect} AND s.model = wanted.model
                   AND s.version = wanted.version
                 ORDER BY tenant_id, priority DESC, due_at, job_id, start LIMIT 1)"""
_UNFINISHED = text(f"""
    SELECT wanted.model || '@' || wanted.version
    FROM unnest(CAST(:models AS text[]), CAST(:versions AS text[])) AS wanted (model, version)
    WHERE coalesce({_ANY_READY.format(suspect="NOT s.suspect")},
                   {_ANY_READY.format(suspect="s.suspect")},
                   (SELECT true FROM slices s
                    WHERE s.state = 'leased' AND s.model = wanted.model
                      AND s.version = wanted.version
                    ORDER BY lease_until LIMIT 1))
""")


def unfinished(tx: Tx, models: Iterable[Model]) -> set[str]:
    """Returns those of these models that have slices which are ready, now or later, or leased."""
    return set(tx.scalars(_UNFINISHED, model_arrays(models)))


def model_arrays(models: Iterable[Model]) -> dict[str, Any]:
    """Returns models as the parameters models, versions."""
    listed = list(models)
    return {"models": [m.name for m in listed], "versions": [m.version for m in listed]}
