"""Time of a step: k0 + k1 * prefill tokens + k2 * sequences + k3 * KV tokens that are read.

Recursive least squares (Ljung, System Identification, 11.2), in which a step that took many times
its prediction (a pause of the machine) has little weight. A step forgets earlier ones only in what
it tells of itself (Kulhavy, Restricted exponential forgetting, 1987): hours without a prompt leave
known what a prompt costs. What small steps tell of a factor of large ones counts little against the
first guess, 0: pauses in the first steps would be multiplied.
"""

from collections.abc import Sequence

_FORGETTING = 0.995  # the latest 200 steps or so count, of those alike
_FIRST_VARIANCES = (1e4, 1e3, 1e1, 1.0)  # of the factors, relative to that of a step's time
_MOST_RESIDUALS = 4.0  # times the usual one
_SCALES = (1.0, 256.0, 16.0, 8192.0)  # a usual step: features of about one size
_TRUSTED_STEPS = 8
_USUAL_NOISE = 0.1  # share of the prediction that any step may be off
_SMOOTHING = 0.05
_LEAST_WEIGHT = 1e-3


class StepTime:
    """Prediction of the time of a step, s."""

    def __init__(self) -> None:
        self.steps = 0  #: observed
        self._factors = [0.0] * len(_SCALES)
        self._covariance = [
            [variance if row == column else 0.0 for column in range(len(_SCALES))]
            for row, variance in enumerate(_FIRST_VARIANCES)
        ]
        self._usual_s = 0.0  # mean size of the residuals

    @property
    def trusted(self) -> bool:
        """True once enough steps were observed to go by."""
        return self.steps >= _TRUSTED_STEPS

    def predict_s(self, prefill: int, sequences: int, kv_tokens: int) -> float:
        """Returns the predicted time of a step, s; 0 before any was observed."""
        features = _features(prefill, sequences, kv_tokens)
        return sum(max(0.0, k) * x for k, x in zip(self._factors, features, strict=True))

    def prefill_within(self, seconds: float, sequences: int, kv_tokens: int, most: int) -> int:
        """Returns the tokens of prompts, `most` at most, that a step of so many seconds has room
        for."""
        left_s = seconds - self.predict_s(0, sequences, kv_tokens)
        each_s = max(0.0, self._factors[1]) / _SCALES[1]
        if left_s <= 0:
            return 0
        return most if each_s * most <= left_s else int(left_s / each_s)

    def observe(self, seconds: float, prefill: int, sequences: int, kv_tokens: int) -> None:
        """Learns from a step that has ended."""
        features = _features(prefill, sequences, kv_tokens)
        guess_s = sum(k * x for k, x in zip(self._factors, features, strict=True))
        residual_s = seconds - guess_s
        spread = [_dot(row, features) for row in self._covariance]
        noise = _FORGETTING / self._weight(abs(residual_s), guess_s)
        known = _dot(spread, features)
        gain = [each / (noise + known) for each in spread]
        self._factors = [k + g * residual_s for k, g in zip(self._factors, gain, strict=True)]
        self._covariance = [
            [
                cell + ((1 / _FORGETTING - 1) * t / known - g / _FORGETTING) * s
                for cell, s in zip(row, spread, strict=True)
            ]
            for row, g, t in zip(self._covariance, gain, spread, strict=True)
        ]
        self.steps += 1

    def _weight(self, residual_s: float, guess_s: float) -> float:
        """Returns the weight of a step (Huber): less than 1 where it differs more than others do.
        What nothing is known of, as the first long prompt, is learned whatever its weight."""
        most_s = max(_MOST_RESIDUALS * self._usual_s, _USUAL_NOISE * guess_s)
        weight = min(1.0, most_s / residual_s) if self.trusted and residual_s else 1.0
        self._usual_s += (min(residual_s, most_s) - self._usual_s) * _SMOOTHING
        return max(weight, _LEAST_WEIGHT)


def _features(prefill: int, sequences: int, kv_tokens: int) -> Sequence[float]:
    counts = 1.0, prefill, sequences, kv_tokens
    return [count / scale for count, scale in zip(counts, _SCALES, strict=True)]


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
