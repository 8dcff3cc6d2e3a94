"""Distribution of test files to the processes of xdist."""

from xdist.scheduler import LoadScopeScheduling

from tests.support.tiers import group_of


class ByPlatform(LoadScopeScheduling):
    """Sends a file's tests to one process, and with them those of files on the same platform."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid.partition("::")[0])
