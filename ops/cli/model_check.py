"""Check of one model in this process: loads it, runs it, measures its launches by size, and advises
limits for its entry."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import cycle, groupby, islice
from operator import attrgetter
from statistics import mean, median
from typing import Any

from jobs import clock
from jobs.models.model import DEFAULT_ROWS, Model
from workers.device import bisection
from workers.device.prepare import prepare
from workers.device.warmup import limits as launch_limits
from workers.device.warmup.measure import timed
from workers.engines import registry as engines
from workers.engines.flops import count_flops
from workers.engines.protocol import DeviceFailed, Engine, Gated, InvalidInput
from workers.items.results import outcome
from workers.scheduler.entries import Entry
from workers.scheduler.snapshot import LaneView, Rules

#: Share of the best throughput that suffices: larger launches only add latency.
_GOOD_SHARE = 0.95
_ROUNDS = 5
_MEASURE_S = 1.0  # bound of measuring one size of launch
_SLICE_S = 1.5  # of a slice on the device: one to two
_MOST_SLICE_ITEMS = 10_000
_OUTPUT_CHARS = 200  # of the output that is shown
_BAR_CHARS = 40


class ModelCheckFailed(Exception):
    """Reports that a model can't be served as it is declared."""


@dataclass(frozen=True, slots=True)
class Point:
    """Figures of launches of one size."""

    rows: int
    launch_ms: float  #: median
    items_per_s: float
    tflops: float = 0.0  #: products of matrices a second, 10^12 operations; 0: torch does none

    @property
    def item_ms(self) -> float:
        """Time an item."""
        return 1000 / self.items_per_s


@dataclass(frozen=True, slots=True)
class Curve:
    """Figures of launches of inputs of one bucket."""

    bucket: int  #: longest input; 0 without buckets
    points: Sequence[Point]
    best: int  #: fewest rows that are good enough
    in_time: int  #: most rows within the target; 0: none
    size: float = 0.0  #: mean of the inputs, in the model's unit


@dataclass(frozen=True, slots=True)
class ModelReport:
    """Result of a check."""

    model: str
    load_s: float
    memory_mb: float
    inputs: int
    output: str  #: of the first input, as JSON
    unit: str  #: of buckets
    target_ms: int
    curves: Sequence[Curve]
    advice: Mapping[str, int]  #: limits for its entry
    finds_limits: bool = False  #: True: a worker finds what the entry leaves out
    device: str = ""  #: kind: a GPU's product name, or cpu
    peak_tflops: float = 0.0  #: bf16 peak of the device, by its data sheet; 0: unknown
    device_gib: float = 0.0  #: memory of the device

    def as_json(self) -> dict[str, Any]:
        """Object that `--json` prints."""
        return asdict(self)


def check_model(model: Model, device: str, inputs: Sequence[Any] = ()) -> ModelReport:
    """Loads a model and measures launches. inputs: default: the engine's samples.

    Raises ModelCheckFailed.
    """
    if problems := model.file_problems():
        raise ModelCheckFailed("; ".join(problems))
    since_s = clock.monotonic()
    try:
        engine = engines.load_engine(model, device)
    except (Exception, SystemExit) as error:
        raise ModelCheckFailed(
            f"{model.key} can't be loaded: {type(error).__name__}: {error}"
        ) from error
    load_s = clock.monotonic() - since_s
    try:
        engine.probe()
        inputs = inputs or list(engine.samples())
        entries = _entries(model, engine, inputs)
        output = _first_output(model, engine, entries)
        curves = [_curve(model, engine, group) for group in _by_bucket(entries)]
        return ModelReport(
            model=model.key,
            load_s=round(load_s, 3),
            memory_mb=engine.memory_mb(),
            inputs=len(inputs),
            output=output[:_OUTPUT_CHARS],
            unit=model.spec.unit,
            target_ms=model.target_ms,
            curves=curves,
            advice=_advice(model, engine, curves),
            finds_limits=model.measures_limits,
        )
    except DeviceFailed as error:
        raise ModelCheckFailed(f"{model.key}: the device failed: {error}") from error
    finally:
        engine.close()


def lines(tried: ModelReport) -> Iterator[str]:
    """Yields the lines of a report."""
    memory = (
        f"{tried.memory_mb:.1f} MiB of weights"
        if tried.memory_mb
        else "its engine counts no weights"
    )
    yield f"{tried.model}: loaded in {tried.load_s:.1f} s, {memory}"
    yield f"first of {tried.inputs} inputs: {tried.output}"
    for curve in tried.curves:
        yield ""
        if curve.bucket:
            yield f"inputs of up to {curve.bucket} {tried.unit}"
        yield from _table(curve, tried.peak_tflops)
        yield _verdict(curve, tried.target_ms)
    limits = ("max_batch", "max_tokens", "slice_items")
    values = ", ".join(f"{key} = {tried.advice[key]}" for key in limits if key in tried.advice)
    yield ""
    if tried.finds_limits:
        yield "without limits in its entry, a worker measures launches likewise when it loads it"
    yield "for its entry in the models file:"
    yield f"limits = {{ {values} }}"
    if memory_mb := tried.advice.get("memory_mb"):
        yield f"memory_mb = {memory_mb}"


def _entries(model: Model, engine: Engine, inputs: Sequence[Any]) -> list[Entry]:
    if not inputs:
        raise ModelCheckFailed(
            f"{model.key} has no samples to try it with: give it some with --input FILE, or in its "
            "entry (options.samples) or file (SAMPLES)"
        )
    entries: list[Entry] = []
    for n, entry in enumerate(prepare(model, engine, inputs, {}), start=1):
        if isinstance(entry, InvalidInput):
            raise ModelCheckFailed(f"{model.key} refuses input {n}: {entry}")
        entries.append(entry)
    return entries


def _first_output(model: Model, engine: Engine, entries: Sequence[Entry]) -> str:
    """Runs each input alone; returns the first output, as JSON."""
    first = ""
    for n, entry in enumerate(entries, start=1):
        [output] = bisection.run(engine.run, [entry.data], {})
        raw, error = outcome(output)
        if raw is None:
            code, message = error or ("", "")
            raise ModelCheckFailed(f"{model.key} fails on input {n}: {code}: {message}")
        first = first or raw.decode()
    return first


def _check_batch(model: Model, engine: Engine, batch: Sequence[Any]) -> None:
    """Raises ModelCheckFailed unless one launch runs all inputs: bisection would split each."""
    try:
        outputs = len(list(engine.run(batch, {})))
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
    else:
        if outputs == len(batch):
            return
        reason = f"{outputs} outputs"
    raise ModelCheckFailed(
        f"{model.key} fails on {len(batch)} inputs together, though on none alone: {reason}"
    )


def _by_bucket(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    bucket = attrgetter("bucket")
    for _, group in groupby(sorted(entries, key=bucket), key=bucket):
        yield list(group)


def _curve(model: Model, engine: Engine, entries: Sequence[Entry]) -> Curve:
    """Measures launches of 1, 2, 4, … rows, up to the limits; where the entry leaves them out, to
    the size at which a worker that loads the model ends, at the latest."""
    units = sum(entry.size for entry in entries)
    bucket = entries[0].bucket
    with ThreadPoolExecutor(model.limits.in_flight) as slots:
        if model.measures_limits:
            size = round(bucket if model.pads and bucket else units / len(entries))
            points = list(_swept(model, engine, entries, size, slots))
        else:
            view = LaneView(entries[0].lane, bucket, items=len(entries), items_units=units)
            full = Rules.from_model(model).full_rows(view)
            batch = [entry.data for entry in islice(cycle(entries), full)]
            _check_batch(model, engine, batch)
            points = [_point(model, engine, batch[:rows], slots) for rows in _sizes(full)]
    fastest = max(point.items_per_s for point in points)
    allowed_ms = model.target_ms - model.margin_ms
    return Curve(
        bucket,
        points,
        next(p.rows for p in points if p.items_per_s >= _GOOD_SHARE * fastest),
        max((p.rows for p in points if p.launch_ms <= allowed_ms), default=0),
        round(units / len(entries), 3),
    )


def _swept(
    model: Model, engine: Engine, entries: Sequence[Entry], size: int, slots: ThreadPoolExecutor
) -> Iterator[Point]:
    sweep = launch_limits.Sweep(launch_limits.most_rows(model, size))
    while rows := sweep.rows:
        batch = [entry.data for entry in islice(cycle(entries), rows)]
        try:
            _check_batch(model, engine, batch)
        except ModelCheckFailed:
            if rows <= DEFAULT_ROWS:
                raise
            return  # as where memory runs out, at which a worker ends too
        point = _point(model, engine, batch, slots)
        yield point
        sweep.add(point.launch_ms / 1000)


def _point(model: Model, engine: Engine, batch: Sequence[Any], slots: ThreadPoolExecutor) -> Point:
    launches = model.limits.in_flight
    until_s = clock.monotonic() + _MEASURE_S
    launch_s = max(1e-9, median(timed(engine.run, batch, slots, launches, _ROUNDS, until_s)))
    per_s = launches / launch_s
    # An upstream computes elsewhere, and may charge for it.
    flops = 0.0 if isinstance(engine, Gated) else count_flops(partial(engine.run, batch, {}))
    return Point(
        len(batch),
        round(launch_s * 1000, 4),
        round(per_s * len(batch), 2),
        float(f"{per_s * flops / 1e12:.4g}"),
    )


def _sizes(most: int) -> list[int]:
    """Powers of two below `most`, and `most`."""
    powers = [1 << n for n in range(most.bit_length())]
    return sorted({*powers, most})


def _advice(model: Model, engine: Engine, curves: Sequence[Curve]) -> dict[str, int]:
    """Limits for the largest launches that pay and that the target allows."""
    rows = [(curve, max(1, min(curve.best, curve.in_time))) for curve in curves]
    advice = {"max_batch": max(most for _, most in rows)}
    if model.size_buckets:  # without padding a row is as long as the mean
        advice["max_tokens"] = max(
            round(most * (curve.bucket or curve.size)) for curve, most in rows
        )
    item_s = mean(1 / _rate(curve, most) for curve, most in rows)
    advice["slice_items"] = min(
        _MOST_SLICE_ITEMS, max(advice["max_batch"], _two_digits(_SLICE_S / item_s))
    )
    if weights := engine.memory_mb():
        advice["memory_mb"] = max(1, round(weights))
    return advice


def _rate(curve: Curve, rows: int) -> float:
    """Returns the items per second of the largest launches up to so many rows."""
    return max(point.items_per_s for point in curve.points if point.rows <= rows)


def _two_digits(value: float) -> int:
    """Rounds to two digits: measurements hold no more. Returns 1 at least."""
    return max(1, int(float(f"{value:.2g}")))


def _table(curve: Curve, peak_tflops: float) -> Iterator[str]:
    fastest = max(point.items_per_s for point in curve.points)
    columns: list[tuple[str, int, Callable[[Point], str]]] = [
        ("batch", 6, lambda p: f"{p.rows}"),
        ("ms a launch", 12, lambda p: f"{p.launch_ms:.2f}"),
        ("items/s", 10, lambda p: f"{p.items_per_s:.1f}"),
        ("ms an item", 11, lambda p: f"{p.item_ms:.3f}"),
    ]
    if any(point.tflops for point in curve.points):
        columns.append(("TFLOP/s", 9, lambda p: f"{p.tflops:.3g}"))
        if peak_tflops:
            columns.append(("MFU", 6, lambda p: f"{p.tflops / peak_tflops:.0%}"))
    yield " ".join(f"{head:>{width}}" for head, width, _ in columns)
    for point in curve.points:
        row = " ".join(f"{shown(point):>{width}}" for _, width, shown in columns)
        bar = "#" * max(1, round(_BAR_CHARS * point.items_per_s / fastest))
        yield f"{row}  {bar}"


def _verdict(curve: Curve, target_ms: int) -> str:
    last = curve.points[-1].rows
    best = f"best batch size: {curve.best}"
    if curve.best == last > 1:
        best += " (it still rises: try larger limits)"
    if curve.in_time == 0:
        return f"{best}; not even one is answered within target_ms = {target_ms}"
    most = "all" if curve.in_time == last else f"up to {curve.in_time}"
    return f"{best}; within target_ms = {target_ms}: {most}"
