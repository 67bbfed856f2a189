"""Whole runs with a known answer: CUDA-style traces of a pipeline, and the truth about them.

``pipeline_run`` simulates a declared schedule and writes one trace per rank such that the GPU
does exactly that, while the host runs ahead as on a real machine: the CPU span of an action is
only its enqueue, all of a step is enqueued before its first kernel starts, and the last kernels
of a step run while the host is already in the next. The truth comes from the simulation alone,
never from reading the files back.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from tests.builders import TraceBuilder
from tracekit.simulate.replay import Replay, Timed, replay
from tracekit.simulate.schedules import Action, schedule_orders, virtual_stage

Noise = Callable[[int, int, Action], int]  # step, replica, action -> ns added to its duration
Span = tuple[int, int]

BASE_NS = 1_750_000_000_000_000_000
_SLOT_NS = 40_000  # host time to enqueue one action with its receive and send
_COLLECTIVE_SLOT_NS = 12_000
_HOST_AHEAD_NS = 300_000  # the host enters a step this long before the last one ends on the GPU
_SKEW_NS = 8_000  # the latest rank starts an all-reduce this long after the first
_ALL_REDUCE_NS = 50_000
_OPTIMIZER_NS = 100_000
# Streams: one for each direction, since NCCL gives each pair of ranks its own.
_COMPUTE, _WORLD, _DP = 7, 30, 31
_SEND = {"F": 20, "B": 22, "I": 22}
_RECEIVE = {"F": 21, "B": 23, "I": 23}


@dataclass(frozen=True, slots=True)
class ActionTruth:
    """When an action ran, on the true clock (``Truth.offset_ns`` not yet added)."""

    step: int
    replica: int
    rank: int
    vstage: int
    action: Action
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class StageTruth:
    """One stage in one step. Window: first F of any stage to last B, I or W of any stage.

    ``transfer_ns``: transfers that leave from or arrive at this stage while it runs no action;
    ``received_ns`` counts the arrivals alone. ``bubble_ns`` = window - busy - transfer.
    """

    step: int
    replica: int
    stage: int
    rank: int
    window_start_ns: int
    window_end_ns: int
    busy_ns: int
    transfer_ns: int
    received_ns: int

    @property
    def window_ns(self) -> int:
        return self.window_end_ns - self.window_start_ns

    @property
    def bubble_ns(self) -> int:
        return self.window_ns - self.busy_ns - self.transfer_ns


@dataclass(slots=True)
class Truth:
    """What the files of ``pipeline_run`` say, exactly."""

    schedule: str
    p: int
    m: int
    v: int
    dp: int
    hosts: tuple[str, ...]  # by rank
    offset_ns: tuple[int, ...]  # by rank: its clock minus the true one
    paths: list[Path] = field(default_factory=list)
    actions: list[ActionTruth] = field(default_factory=list)
    stages: list[StageTruth] = field(default_factory=list)
    all_reduce_ends_ns: list[int] = field(default_factory=list)  # of the world, in order

    def bubble_ratio(self, step: int | None = None, replica: int | None = None) -> Fraction:
        """Bubble over window, summed over the stages of the given step and replica, or of all."""
        chosen = self._chosen(step, replica)
        return Fraction(sum(s.bubble_ns for s in chosen), sum(s.window_ns for s in chosen))

    def idle_ratio(self, step: int | None = None, replica: int | None = None) -> Fraction:
        """1 - busy / window: the bubble ratio with transfers counted as bubble."""
        chosen = self._chosen(step, replica)
        return 1 - Fraction(sum(s.busy_ns for s in chosen), sum(s.window_ns for s in chosen))

    def _chosen(self, step: int | None, replica: int | None) -> list[StageTruth]:
        return [s for s in self.stages if step in (None, s.step) and replica in (None, s.replica)]


@dataclass(frozen=True, slots=True)
class _Transfer:
    """The data that an action of another stage needs, from the end of its producer."""

    producer: Timed
    consumer: Timed
    start_ns: int
    end_ns: int
    receive_start_ns: int


def pipeline_run(
    folder: Path,
    *,
    schedule: str = "1f1b",
    p: int = 4,
    m: int = 8,
    v: int = 1,
    f_ns: int | Sequence[int] = 1_000_000,
    b_ns: int | Sequence[int] = 2_000_000,
    w_ns: int | Sequence[int] | None = None,
    p2p_ns: int = 0,
    steps: int = 2,
    receive_waits: bool = False,
    host_offsets_ns: Sequence[int] | None = None,
    hosts: Sequence[str] | None = None,
    noise: Noise | None = None,
    dp: int = 1,
    all_reduces: int | None = None,
    autograd_thread: bool = False,
    base_ns: int = BASE_NS,
) -> Truth:
    """Write ``rank{r}.json.gz`` for every rank of p stages x dp replicas, and give the truth.

    ``schedule`` is any name of ``schedule_orders`` ("interleaved" is short for its 1F1B).
    Durations are those of one action on one chunk, in ns, the same everywhere or one per stage;
    b is the whole backward, of which w (default: half) is W where the schedule splits it.
    ``noise`` adds to each duration (``jitter``).

    Rank = stage * dp + replica. ``host_offsets_ns`` has one clock offset per host: ranks lie in
    equal blocks on as many hosts, or on those that ``hosts`` names by rank. A receive kernel ends
    when the data is there; with ``receive_waits`` it starts as soon as the receiver is free, and
    so contains its wait. ``p2p_ns=0`` gives sends, and receives that do not wait, zero length.

    After the pipeline come all-reduces of the world (12 or more in a run, or ``all_reduces`` in
    each step) that end together on all ranks. ``autograd_thread``: the backward is launched from
    a second thread, as torch does, while its annotation stays on the main thread.
    """
    world = p * dp
    schedule = {"interleaved": "interleaved-1f1b"}.get(schedule, schedule)
    truth = Truth(schedule, p, m, v, dp, *_place(world, hosts, host_offsets_ns))
    count = max(2, -(-12 // steps)) if all_reduces is None else all_reduces
    orders = schedule_orders(schedule, p, m, v)
    plan = _Plan(orders, f_ns, b_ns, w_ns, noise, p2p_ns, receive_waits, steps, count)
    ranks = [_Rank(truth, rank, base_ns, autograd_thread) for rank in range(world)]
    _run_steps(truth, plan, ranks, base_ns + 1_000_000)
    truth.paths = [r.trace.write(folder / f"rank{r.rank}.json.gz") for r in ranks]
    return truth


def _run_steps(truth: Truth, plan: "_Plan", ranks: Sequence["_Rank"], cpu: int) -> None:
    enqueue = 40_000 + len(plan.orders[0]) * _SLOT_NS + (plan.count + 1) * _COLLECTIVE_SLOT_NS
    gpu_end = 0
    for step in range(plan.steps):
        gpu = max(cpu + enqueue + 50_000, gpu_end + 20_000)
        runs = [plan.replay(step, replica) for replica in range(truth.dp)]
        for replica, run in enumerate(runs):
            edges = _transfers(run, truth.p, plan.p2p_ns, plan.receive_waits)
            _tell(truth, step, replica, run, edges, gpu)
            for stage in range(truth.p):
                rank = ranks[stage * truth.dp + replica]
                rank.pipeline(run, stage, edges, cpu + 20_000, gpu)
        tail = _Tail(gpu + max(run.end_ns for run in runs), plan.count)
        truth.all_reduce_ends_ns += tail.world_ends_ns
        gpu_end = tail.optimizer_ns + _OPTIMIZER_NS
        last = step == plan.steps - 1
        cpu_end = gpu_end + 50_000 if last else max(cpu + enqueue, gpu_end - _HOST_AHEAD_NS)
        for rank in ranks:
            rank.finish(step, tail, cpu, cpu + enqueue, cpu_end, last)
        cpu = cpu_end


def jitter(amplitude_ns: int, seed: int = 1) -> Noise:
    """Noise in [-amplitude, amplitude]: a plain hash of its arguments, the same on every run."""

    def noise(step: int, replica: int, action: Action) -> int:
        mixed = seed
        for number in (step, replica, ord(action.kind), action.stage, action.chunk):
            mixed = (mixed * 1_000_003 + number) % 2_147_483_647
        mixed = (mixed * 1_000_003 + action.microbatch) % 2_147_483_647
        return mixed * 48_271 % 2_147_483_647 % (2 * amplitude_ns + 1) - amplitude_ns

    return noise


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all ranks are to do."""

    orders: list[list[Action]]
    f_ns: int | Sequence[int]
    b_ns: int | Sequence[int]
    w_ns: int | Sequence[int] | None
    noise: Noise | None
    p2p_ns: int
    receive_waits: bool
    steps: int
    count: int  # all-reduces of the world in each step

    def replay(self, step: int, replica: int) -> Replay:
        def duration(action: Action) -> int:
            whole = _at(self.b_ns, action.stage)
            weight = whole // 2 if self.w_ns is None else _at(self.w_ns, action.stage)
            forward = _at(self.f_ns, action.stage)
            ns = {"F": forward, "B": whole, "I": whole - weight, "W": weight}[action.kind]
            return ns + (self.noise(step, replica, action) if self.noise else 0)

        return replay(self.orders, duration, latency_ns=self.p2p_ns)


@dataclass(frozen=True, slots=True)
class _Tail:
    """What follows the pipeline: gradient all-reduce (dp), world all-reduces, optimizer."""

    start_ns: int
    world: int

    def slot_ns(self, k: int) -> int:
        """Where the first rank may start collective k; 0 is that of the dp groups."""
        return self.start_ns + 10_000 + k * (_SKEW_NS + _ALL_REDUCE_NS + 10_000)

    def span(self, k: int, rank: int) -> Span:
        """Ranks come late by turns and leave together."""
        late = (rank * 7 + k * 3) % 5 * (_SKEW_NS // 4)
        return self.slot_ns(k) + late, self.slot_ns(k) + _SKEW_NS + _ALL_REDUCE_NS

    @property
    def world_ends_ns(self) -> list[int]:
        return [self.span(k, 0)[1] for k in range(1, self.world + 1)]

    @property
    def optimizer_ns(self) -> int:
        return self.slot_ns(self.world + 1)


class _Rank:
    """Writes one rank: absolute true times in, the times of the rank's clock out."""

    def __init__(self, truth: Truth, rank: int, base_ns: int, autograd_thread: bool) -> None:
        p, dp = truth.p, truth.dp
        host = truth.hosts[rank]
        local = truth.hosts[:rank].count(host)
        self.rank = rank
        self.dp = dp
        self.p = p
        self.stage, self.replica = divmod(rank, dp)
        self.shift = truth.offset_ns[rank] - base_ns
        self.trace = TraceBuilder(rank, p * dp, host=host, base_ns=base_ns, device=local)
        self.backward_tid = self.trace.pid + (500 if autograd_thread else 0)
        self.trace.group("0", "default_pg", range(p * dp))
        self.pp, self.dp_group = str(1 + self.replica), str(1 + dp + self.stage)
        self.trace.group(self.pp, "mesh_pp", [s * dp + self.replica for s in range(p)])
        if dp > 1:
            self.trace.group(self.dp_group, "mesh_dp", [self.stage * dp + d for d in range(dp)])

    def pipeline(
        self, run: Replay, stage: int, edges: Iterable[_Transfer], cpu: int, gpu: int
    ) -> None:
        """All actions of a step, slot by slot on the host: receive, launches, send."""
        receives = {e.consumer.action: e for e in edges if e.consumer.action.stage == stage}
        sends = {e.producer.action: e for e in edges if e.producer.action.stage == stage}
        free: dict[int, int] = defaultdict(int)  # stream: end of its last kernel
        for position, timed in enumerate(run.stages[stage]):
            slot = cpu + position * _SLOT_NS
            if edge := receives.get(timed.action):
                peer, stream = edge.producer.action.stage, _RECEIVE[timed.action.kind]
                start = max(edge.receive_start_ns, min(free[stream], edge.end_ns))
                free[stream] = edge.end_ns
                self._p2p("recv", start + gpu, edge.end_ns + gpu, slot + 2_000, peer, stream)
            self._action(timed, gpu, slot + 10_000)
            if edge := sends.get(timed.action):
                peer, stream = edge.consumer.action.stage, _SEND[timed.action.kind]
                start = max(edge.start_ns, min(free[stream], edge.end_ns))
                free[stream] = edge.end_ns
                self._p2p("send", start + gpu, edge.end_ns + gpu, slot + 32_000, peer, stream)

    def finish(
        self, step: int, tail: _Tail, cpu: int, enqueued: int, cpu_end: int, last: bool
    ) -> None:
        """The collectives and the optimizer of a step, and its mark on the host."""
        slot = enqueued - 20_000 - (tail.world + 1) * _COLLECTIVE_SLOT_NS
        for k in range(tail.world + 1):
            if k == 0 and self.dp == 1:
                continue
            start, end = tail.span(k, self.rank)
            self.trace.collective(
                "allreduce",
                ts_ns=start + self.shift,
                dur_ns=end - start,
                elems=1 << 20,
                group="0" if k else self.dp_group,
                stream=_WORLD if k else _DP,
                launch_ns=slot + k * _COLLECTIVE_SLOT_NS + 2_000 + self.shift,
            )
        name = "Optimizer.step#AdamW.step"
        at = enqueued - 18_000 + self.shift
        external = self.trace.annotation(name, ts_ns=at, dur_ns=10_000)
        self.trace.kernel(
            "multi_tensor_apply_kernel<AdamW>",
            ts_ns=tail.optimizer_ns + self.shift,
            dur_ns=_OPTIMIZER_NS,
            launch_ns=at + 1_000,
            external_id=external,
        )
        if last:
            waits = {"ts_ns": enqueued + self.shift, "dur_ns": cpu_end - 10_000 - enqueued}
            self.trace.sync(kind="Device Sync", launch_ns=enqueued + self.shift, **waits)
        self.trace.step(step, ts_ns=cpu + self.shift, dur_ns=cpu_end - cpu)

    def _action(self, timed: Timed, gpu: int, at: int) -> None:
        a = timed.action
        vstage = virtual_stage(a.stage, a.chunk, self.p)
        name = (
            f"tracekit.action {a.kind} stage={a.stage} chunk={a.chunk} "
            f"vstage={vstage} mb={a.microbatch}"
        )
        external = self.trace.annotation(name, ts_ns=at + self.shift, dur_ns=20_000)
        start, end = timed.start_ns + gpu + self.shift, timed.end_ns + gpu + self.shift
        self.trace.gpu_annotation(name, ts_ns=start, dur_ns=end - start, external_id=external)
        kernels = 2 if a.kind == "F" else 3
        tid = self.trace.pid if a.kind == "F" else self.backward_tid
        for i in range(kernels):
            # Cuts at equal parts: back to back, no ns lost.
            first, then = ((end - start) * n // kernels + start for n in (i, i + 1))
            op_ns = at + self.shift + 1_000 + i * 6_000
            op = self.trace.cpu_op("aten::mm", ts_ns=op_ns, dur_ns=5_800, tid=tid)
            self.trace.kernel(
                "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas",
                ts_ns=first,
                dur_ns=then - first,
                stream=_COMPUTE,
                launch_ns=op_ns + 400,
                external_id=op,
                tid=tid,
            )

    def _p2p(self, op: str, start: int, end: int, at: int, peer: int, stream: int) -> None:
        peer_rank = peer * self.dp + self.replica
        self.trace.collective(
            op,
            ts_ns=start + self.shift,
            dur_ns=end - start,
            elems=1 << 16,
            group=self.pp,
            stream=stream,
            launch_ns=at + self.shift,
            dst=peer_rank if op == "send" else None,
            src=peer_rank if op == "recv" else None,
        )


def _at(ns: int | Sequence[int], stage: int) -> int:
    return ns if isinstance(ns, int) else ns[stage]


def _place(
    world: int, hosts: Sequence[str] | None, offsets: Sequence[int] | None
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Host name and clock offset of each rank."""
    count = len(offsets) if offsets else 1
    names = tuple(hosts or (f"host{rank * count // world}" for rank in range(world)))
    known = list(dict.fromkeys(names))
    if len(names) != world or (offsets and len(offsets) != len(known)):
        raise ValueError("hosts need one name per rank, offsets one value per host")
    by_host = dict(zip(known, offsets or [0] * len(known), strict=True))
    return names, tuple(by_host[name] for name in names)


def _transfers(run: Replay, p: int, p2p_ns: int, receive_waits: bool) -> list[_Transfer]:
    """Every edge between two stages, in the order in which its receiver consumes."""
    gives = {_output(timed.action, p): timed for timed in run if timed.action.kind != "W"}
    edges = []
    for stage in run.stages:
        free = run.start_ns
        for timed in stage:
            direction, k, mb = _output(timed.action, p)
            producer = gives.get((direction, k - 1 if direction == "F" else k + 1, mb))
            remote = producer is not None and producer.action.stage != timed.action.stage
            if producer is not None and remote and timed.action.kind != "W":
                sent = producer.end_ns
                receive = min(free, sent) if receive_waits else sent
                edges.append(_Transfer(producer, timed, sent, sent + p2p_ns, receive))
            free = timed.end_ns
    return edges


def _output(action: Action, p: int) -> tuple[str, int, int]:
    """Direction, virtual stage and micro-batch of what an action sends on."""
    k = virtual_stage(action.stage, action.chunk, p)
    return "F" if action.kind == "F" else "B", k, action.microbatch


def _tell(
    truth: Truth, step: int, replica: int, run: Replay, edges: Sequence[_Transfer], gpu: int
) -> None:
    window = run.start_ns + gpu, run.end_ns + gpu
    for stage, done in enumerate(run.stages):
        rank = stage * truth.dp + replica
        busy = [(t.start_ns, t.end_ns) for t in done]
        received = [(e.start_ns, e.end_ns) for e in edges if e.consumer.action.stage == stage]
        sent = [(e.start_ns, e.end_ns) for e in edges if e.producer.action.stage == stage]
        exposed = (_outside(received + sent, busy), _outside(received, busy))
        truth.stages.append(
            StageTruth(step, replica, stage, rank, *window, run.busy_ns(stage), *exposed)
        )
        for t in done:
            vstage = virtual_stage(stage, t.action.chunk, truth.p)
            truth.actions.append(
                ActionTruth(step, replica, rank, vstage, t.action, t.start_ns + gpu, t.end_ns + gpu)
            )


def _outside(spans: Iterable[Span], busy: Sequence[Span]) -> int:
    """Length of the union of the spans outside the busy ones, which are disjoint and sorted."""
    total, covered = 0, None
    for start, end in sorted(spans):
        start = start if covered is None else max(start, covered)
        if end <= start:
            continue
        covered = end
        inside = sum(max(0, min(end, b) - max(start, a)) for a, b in busy)
        total += end - start - inside
    return total
