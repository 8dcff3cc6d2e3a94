"""mosec with the *batchstring* workload, in an environment that has nothing but mosec.

`python mosec_app.py PROCESSES MAX_BATCH WAIT_MS MS --port PORT …` (mosec reads the options).
"""

import sys
import time

from mosec import Server, Worker

_PROCESSES, _MAX_BATCH, _WAIT_MS, _MS = (int(argument) for argument in sys.argv[1:5])


class BatchString(Worker):  # type: ignore[misc]
    """Upper-cases in a fixed time."""

    def forward(self, data: list[dict[str, str]]) -> list[dict[str, str]]:
        """Outputs of a launch."""
        time.sleep(_MS / 1000)
        return [{"output": call["input"].upper()} for call in data]


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        BatchString, num=_PROCESSES, max_batch_size=_MAX_BATCH, max_wait_time=_WAIT_MS
    )
    server.run()
