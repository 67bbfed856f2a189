"""Dependency simulation: when each action of a pipeline runs, to the nanosecond.

A stage runs its actions one after another in the given order, each as early as its inputs allow.
Transfers take a fixed latency, never block the stage that sends, and never compete.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tracekit.simulate.schedules import Action, Kind, Placement, virtual_stage

Duration = Mapping[Kind, int] | Callable[[Action], int]
_Key = tuple[str, int, int]  # kind (B and I both as "B"), virtual stage, micro-batch


@dataclass(frozen=True, slots=True)
class Timed:
    """An action and its interval in integer ns."""

    action: Action
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """Length in ns."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of a simulation: per stage, its actions in order of start."""

    stages: tuple[tuple[Timed, ...], ...]

    def __iter__(self) -> Iterator[Timed]:
        return (timed for stage in self.stages for timed in stage)

    @property
    def start_ns(self) -> int:
        """Start of the first action of any stage."""
        return min(timed.start_ns for timed in self)

    @property
    def end_ns(self) -> int:
        """End of the last action of any stage."""
        return max(timed.end_ns for timed in self)

    @property
    def window_ns(self) -> int:
        """First start to last end over all stages, in ns: the step without the optimizer."""
        return self.end_ns - self.start_ns

    def busy_ns(self, stage: int) -> int:
        """Time in which the stage runs an action, in ns."""
        return sum(timed.duration_ns for timed in self.stages[stage])

    @property
    def bubble_ratio(self) -> Fraction:
        """Bubble over window: 1 - busy / (p * window). Transfers count as bubble here."""
        return 1 - Fraction(self._busy_ns(), len(self.stages) * self.window_ns)

    @property
    def bubble_overhead(self) -> Fraction:
        """Bubble over busy, the convention of Megatron-LM."""
        return Fraction(len(self.stages) * self.window_ns, self._busy_ns()) - 1

    def _busy_ns(self) -> int:
        return sum(self.busy_ns(stage) for stage in range(len(self.stages)))


def replay(
    orders: Sequence[Sequence[Action]],
    duration: Duration,
    *,
    latency_ns: int = 0,
    placement: Placement = "loop",
) -> Replay:
    """Run the orders and return the interval of every action.

    ``orders`` holds one non-empty sequence per stage; ``duration`` gives the ns of each kind, or
    is a function of the action. ``latency_ns`` passes between the end of an action and the
    earliest start of the one that needs its output, if that is on another stage.

    F of virtual stage k needs F of k-1; B or I of k needs B or I of k+1 and its own F; W needs
    its own I. Raises ValueError if an action stands under another stage, occurs twice, needs one
    that no stage runs, has a negative duration, or if the stages wait for each other in a circle.
    """
    _check(orders, latency_ns, placement)
    p = len(orders)
    last = max(virtual_stage(a.stage, a.chunk, p, placement) for order in orders for a in order)
    ended: dict[_Key, tuple[int, int]] = {}  # end in ns, stage
    stages: list[list[Timed]] = [[] for _ in orders]
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            done = stages[stage]
            while len(done) < len(order):
                action = order[len(done)]
                k = virtual_stage(stage, action.chunk, p, placement)
                inputs = [ended.get(key) for key in _needs(action, k, last)]
                if None in inputs:
                    break
                start = done[-1].end_ns if done else 0
                for end, producer in filter(None, inputs):
                    start = max(start, end + (latency_ns if producer != stage else 0))
                end = start + _duration_ns(duration, action)
                done.append(Timed(action, start, end))
                ended[_key(action.kind, k, action.microbatch)] = (end, stage)
                moved = True
    _raise_if_stuck(orders, stages)
    return Replay(tuple(tuple(done) for done in stages))


def _check(orders: Sequence[Sequence[Action]], latency_ns: int, placement: Placement) -> None:
    if latency_ns < 0:
        raise ValueError(f"a latency is not negative, got {latency_ns} ns")
    if not orders or not all(orders):
        raise ValueError("a replay needs one or more actions on every stage")
    p = len(orders)
    known: set[_Key] = set()
    for stage, order in enumerate(orders):
        for action in order:
            if action.stage != stage:
                raise ValueError(f"{action} stands in the order of stage {stage}")
            key = _own_key(action, p, placement)
            if key in known:
                raise ValueError(f"{action} occurs twice (B and I of one micro-batch exclude)")
            known.add(key)
    last = max(k for _, k, _ in known)
    for order in orders:
        for action in order:
            _, k, _ = _own_key(action, p, placement)
            for key in _needs(action, k, last):
                if key not in known:
                    raise ValueError(
                        f"{action} needs {key[0]} of virtual stage {key[1]}, which never runs"
                    )


def _own_key(action: Action, p: int, placement: Placement) -> _Key:
    k = virtual_stage(action.stage, action.chunk, p, placement)
    return _key(action.kind, k, action.microbatch)


def _key(kind: Kind, k: int, microbatch: int) -> _Key:
    return ("B" if kind == "I" else kind, k, microbatch)


def _needs(action: Action, k: int, last: int) -> list[_Key]:
    mb = action.microbatch
    if action.kind == "F":
        return [("F", k - 1, mb)] if k > 0 else []
    if action.kind == "W":
        return [("B", k, mb)]
    return [("F", k, mb), *([("B", k + 1, mb)] if k < last else [])]


def _duration_ns(duration: Duration, action: Action) -> int:
    if callable(duration):
        ns = duration(action)
    elif action.kind in duration:
        ns = duration[action.kind]
    else:
        raise ValueError(f"no duration given for actions of kind {action.kind}")
    if ns < 0:
        raise ValueError(f"{action} has the negative duration {ns} ns")
    return ns


def _raise_if_stuck(orders: Sequence[Sequence[Action]], stages: Sequence[Sequence[Timed]]) -> None:
    stuck = [
        f"stage {stage} before {a.kind} of chunk {a.chunk}, micro-batch {a.microbatch}"
        for stage, (order, done) in enumerate(zip(orders, stages, strict=True))
        for a in order[len(done) : len(done) + 1]
    ]
    if stuck:
        raise ValueError("deadlock: " + "; ".join(stuck))
