"""Signatures of artifacts as this api verifies them, by its trust file."""

from collections.abc import Sequence
from dataclasses import dataclass

from api.dashboard.data.adaptive_cache import AdaptiveCache
from jobs.artifacts import trust
from jobs.artifacts.declared import Untrusted
from jobs.artifacts.manifest import Manifest
from jobs.artifacts.trust import Trust
from jobs.settings import Settings, SettingsError
from jobs.store.db import Tx
from jobs.store.registry import artifacts


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on an artifact's signatures."""

    word: str
    kind: str  #: colour class
    why: str = ""


_verdicts: AdaptiveCache[Verdict] = AdaptiveCache()


def verdict(tx: Tx, settings: Settings, digest: str) -> Verdict:
    """Returns who signed an artifact, or why nobody did that counts."""
    return _verdicts.get((settings.trust, digest), lambda: _verify(tx, settings, digest))


def _verify(tx: Tx, settings: Settings, digest: str) -> Verdict:
    row = artifacts.get(tx, digest)
    bundles = [one.bundle for one in artifacts.signatures_of(tx, digest)]
    if row is None:
        return Verdict("missing", "bad", "the registry has no such artifact")
    if settings.trust is None:
        word = "not checked" if bundles else "unsigned"
        return Verdict(word, "", "this api has no trust file: set MILLRACE_TRUST")
    try:
        trusted = trust.read(settings.trust)
        return _checked(trusted, Manifest.from_json(row.manifest), bundles)
    except (SettingsError, Untrusted) as error:
        return Verdict("not verified", "bad", str(error))


def _checked(trusted: Trust, manifest: Manifest, bundles: Sequence[str]) -> Verdict:
    strict: Trust = trusted.model_copy(update={"policy": "require"})
    try:
        return Verdict(f"signed by {strict.check(manifest, bundles)}", "good")
    except Untrusted as error:
        kind = "bad" if trusted.policy == "require" else "warning"
        loads = "" if trusted.policy == "require" else f"; it loads, the policy is {trusted.policy}"
        return Verdict("not verified", kind, f"{error}{loads}")
