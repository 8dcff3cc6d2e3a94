"""Times at which a request got tokens, for the timeline of its call."""

MOST_TIMES = 64


class TokenTimes:
    """Times of the steps that gave a request tokens: all of them, or, of a long request, every
    second, fourth, … one, so that they stay few."""

    def __init__(self) -> None:
        self._times_s: list[float] = []
        self._every = 1  # of so many steps one is kept
        self._steps = 0
        self._latest_s = 0.0
        self.longest_gap_s = 0.0  #: between two of all steps

    def add(self, now_s: float) -> None:
        """Adds a step; a second sequence of the request in it changes nothing."""
        if now_s == self._latest_s:
            return
        if self._latest_s:
            self.longest_gap_s = max(self.longest_gap_s, now_s - self._latest_s)
        self._latest_s = now_s
        if self._steps % self._every == 0:
            if len(self._times_s) == MOST_TIMES:
                del self._times_s[1::2]
                self._every *= 2
            self._times_s.append(now_s)
        self._steps += 1

    def since_ms(self, since_s: float) -> list[int]:
        """Returns the times that are kept, in ms since one."""
        return [round((one - since_s) * 1000) for one in self._times_s]
