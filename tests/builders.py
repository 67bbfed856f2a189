"""Kineto traces for tests, event by event, exact to the nanosecond.

``TraceBuilder`` writes what torch.profiler writes on CUDA: launches with correlations and flows,
kernels, annotations, memory events, collectives with their arguments. It judges nothing: a test
may ask for a kernel before its launch or a negative duration. Whole runs are ``synthetic``'s.

    trace = TraceBuilder(rank=1, world_size=2)
    op = trace.cpu_op("aten::mm", 100, 20)
    trace.kernel("gemm", "130.5", 40, external_id=op, launch=110)
    trace.collective("allreduce", 180, 60, elems=1024)
    trace.write(folder / "rank1.json.gz")

Time: each event takes ``ts_us`` and ``dur_us`` as str, int, float or Decimal, or the keywords
``ts_ns`` and ``dur_ns``; all count from ``base_ns`` where one is given. A file holds microseconds
with three decimals that never were a float; a time finer than 1 ns is a ValueError.
"""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

Micros = str | int | float | Decimal
Time = Micros | None
Event = dict[str, Any]
Layout = Literal["kineto", "kineto-2026", "compact", "pretty", "list"]

# Operations as record_param_comms names them, kernels as NCCL 2.2x does; all others: SendRecv.
_NCCL_KERNELS = {
    "allreduce": "AllReduce_Sum_bf16_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL",
    "broadcast": "Broadcast_RING_LL",
    "reduce": "Reduce_Sum_bf16_RING_LL",
}


def to_ns(micros: Micros) -> int:
    """Microseconds as integer ns, exactly. Raises ValueError below the resolution of 1 ns."""
    ns = Decimal(str(micros)) * 1000
    if ns != int(ns):
        raise ValueError(f"{micros} us is not a whole number of ns")
    return int(ns)


def us(ns: int) -> Decimal:
    """Nanoseconds as microseconds with three decimals, for ``raw`` events and expected values."""
    return Decimal(ns).scaleb(-3).quantize(Decimal("0.001"))


@dataclass
class TraceBuilder:
    """One rank's trace file. A method that adds an event gives back the id to refer to it.

    CPU events (``cpu_op``, ``annotation``, ``step``) give their External id and take ``tid`` and
    ``external_id``. GPU work (``kernel``, ``memcpy``, ``memset``, ``sync``, ``collective``) gives
    its correlation and takes ``stream``, ``device`` and, for the runtime call it comes from:
    ``launch`` (True: 10 us before; a time in us: there; False: not in the file) or ``launch_ns``,
    ``external_id`` (of the operator around the launch; by default the correlation),
    ``correlation`` and ``tid``. Any other keyword becomes an arg of the event.

    ``distributed=False`` leaves out ``distributedInfo``, ``flows=False`` the ac2g arrows;
    ``metadata`` adds top-level keys. ``pid`` (4000 + rank) is also the main thread.
    """

    rank: int = 0
    world_size: int = 1
    _: KW_ONLY
    host: str | None = None
    base_ns: int | None = None
    pid: int = -1
    device: int = 0
    backend: str = "nccl"
    distributed: bool = True
    flows: bool = True
    metadata: Event = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    groups: dict[str, Event] = field(default_factory=dict)
    _next_id: int = 0
    _seq: dict[tuple[str, bool], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.pid < 0:
            self.pid = 4000 + self.rank

    def cpu_op(self, name: str, ts_us: Time = None, dur_us: Time = None, **kw: Any) -> int:
        """A CPU operator; args such as ``**{"Input Dims": [[2, 3]]}``. Gives its External id."""
        ts, dur = _times(ts_us, dur_us, kw)
        cat, tid = kw.pop("cat", "cpu_op"), kw.pop("tid", self.pid)
        external: int = kw.pop("external_id", None) or self._new_id()
        self._complete(cat, name, self.pid, tid, ts, dur, {"External id": external, **kw})
        return external

    def annotation(self, name: str, ts_us: Time = None, dur_us: Time = None, **kw: Any) -> int:
        """A ``record_function`` range on a CPU thread. Gives its External id."""
        return self.cpu_op(name, ts_us, dur_us, cat="user_annotation", **kw)

    def step(self, n: int, ts_us: Time = None, dur_us: Time = None, **kw: Any) -> int:
        """The mark ``ProfilerStep#n``. Gives its External id."""
        return self.annotation(f"ProfilerStep#{n}", ts_us, dur_us, **kw)

    def memory(
        self,
        ts_us: Time,
        nbytes: int,
        total_allocated: int,
        total_reserved: int,
        device_type: int = 1,
        **kw: Any,
    ) -> None:
        """A ``[memory]`` event: an allocation (nbytes > 0) or a free. Device type 1 is CUDA."""
        args = {"Device Type": device_type, "Device Id": kw.pop("device", self.device)}
        args |= {"Addr": kw.pop("addr", 0x7F00_0000_0000), "Bytes": nbytes}
        args |= {"Total Allocated": total_allocated, "Total Reserved": total_reserved}
        ts, _ = _times(ts_us, 0, kw)
        head = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
        place = {"pid": self.pid, "tid": kw.pop("tid", self.pid), "ts": us(ts)}
        self.raw({**head, **place, "args": {**args, **kw}})

    def kernel(self, name: str, ts_us: Time = None, dur_us: Time = None, **kw: Any) -> int:
        """A kernel and the ``cudaLaunchKernel`` it comes from. Gives their correlation."""
        kw = {"queued": 0, "context": 1, "grid": [128, 1, 1], "block": [256, 1, 1], **kw}
        return self._work("kernel", name, "cudaLaunchKernel", *_times(ts_us, dur_us, kw), kw)

    def memcpy(
        self,
        ts_us: Time = None,
        dur_us: Time = None,
        kind: str = "DtoD (Device -> Device)",
        nbytes: int = 4096,
        **kw: Any,
    ) -> int:
        """A copy, such as ``kind="HtoD (Pinned -> Device)"``. Gives its correlation."""
        times = _times(ts_us, dur_us, kw)
        kw |= {"context": 1, "bytes": nbytes}
        return self._work("gpu_memcpy", f"Memcpy {kind}", "cudaMemcpyAsync", *times, kw)

    def memset(self, ts_us: Time = None, dur_us: Time = None, nbytes: int = 4096, **kw: Any) -> int:
        """A fill of device memory. Gives its correlation."""
        times = _times(ts_us, dur_us, kw)
        kw |= {"context": 1, "bytes": nbytes}
        return self._work("gpu_memset", "Memset (Device)", "cudaMemsetAsync", *times, kw)

    def sync(
        self, ts_us: Time = None, dur_us: Time = None, kind: str = "Stream Sync", **kw: Any
    ) -> int:
        """A ``cuda_sync`` row, which is a wait and no work. Gives its correlation."""
        call = "cudaStreamSynchronize" if kind == "Stream Sync" else "cudaDeviceSynchronize"
        ts, dur = _times(ts_us, dur_us, kw)
        kw |= {"cuda_sync_kind": kind, "context": 1}
        return self._work("cuda_sync", kind, call, ts, dur, kw)

    def gpu_annotation(self, name: str, ts_us: Time = None, dur_us: Time = None, **kw: Any) -> None:
        """The shadow of an annotation on a stream, from its first kernel to its last."""
        ts, dur = _times(ts_us, dur_us, kw)
        device, stream = kw.pop("device", self.device), kw.pop("stream", 7)
        args = {"External id": kw.pop("external_id", None) or self._new_id(), **kw}
        self._complete("gpu_user_annotation", name, device, stream, ts, dur, args)

    def group(self, name: str, desc: str, ranks: Sequence[int], size: int | None = None) -> None:
        """Announce a process group; ``size`` only where it differs from the ranks listed."""
        group = {"pg_name": name, "pg_desc": desc, "backend_config": f"cuda:{self.backend}"}
        members = {"pg_size": len(ranks) if size is None else size, "ranks": list(ranks)}
        self.groups[name] = group | members

    def collective(
        self,
        op: str,
        ts_us: Time = None,
        dur_us: Time = None,
        *,
        elems: int = 1024,
        out_elems: int | None = None,
        dtype: str = "BFloat16",
        group: str = "0",
        seq: int | None = None,
        src: int | None = None,
        dst: int | None = None,
        name: str | None = None,
        record: bool = True,
        **kw: Any,
    ) -> int:
        """An NCCL kernel with its args, launched inside ``record_param_comms``.

        ``op`` as in the args: allreduce, _allgather_base, _reduce_scatter_base, all_to_all,
        broadcast, reduce, send (with ``dst`` alone, as torch writes it), recv (with ``src``
        alone); both are global ranks. Group "0" is made over all ranks if need be. ``seq`` counts
        by itself, point to point apart from the rest; -1 leaves it out. ``name`` replaces the
        kernel's, ``record=False`` leaves out the operator. Gives the correlation.
        """
        if group == "0" and group not in self.groups:
            self.group("0", "default_pg", range(self.world_size))
        pg = self.groups[group]
        args: Event = {"Collective name": op, "In msg nelems": elems}
        args |= {"Out msg nelems": elems if out_elems is None else out_elems}
        args |= {"Group size": pg["pg_size"], "dtype": dtype}
        args |= {"In split size": "[]", "Out split size": "[]", "Process Group Name": group}
        args |= {"Process Group Description": pg["pg_desc"]}
        args |= {"Process Group Ranks": str(pg["ranks"])}
        counter = (group, op in ("send", "recv"))
        if seq is None:
            seq = self._seq[counter] = self._seq.get(counter, 0) + 1
        optional = {"Src Rank": src, "Dst Rank": dst, "Seq": seq if seq >= 0 else None}
        args |= {key: value for key, value in optional.items() if value is not None}
        ts, dur = _times(ts_us, dur_us, kw)
        at = _launch_ns(ts, kw)
        kw |= {"launch": False} if at is None else {"launch_ns": at}
        if record and at is not None:
            tid = kw.get("tid", self.pid)
            times = {"ts_ns": at - 1000, "dur_ns": 7000, "tid": tid}
            kw.setdefault("external_id", self.cpu_op("record_param_comms", **times, **args))
        kernel = (
            f"ncclDevKernel_{_NCCL_KERNELS.get(op, 'SendRecv')}(ncclDevKernelArgsStorage<4096>)"
        )
        own = {"stream": 20, "queued": 0, "context": 1, "grid": [8, 1, 1], "block": [512, 1, 1]}
        return self._work(
            "kernel", name or kernel, "cudaLaunchKernelExC", ts, dur, {**own, **args, **kw}
        )

    def raw(self, event: Event) -> None:
        """Any event as it stands; a ``Decimal`` in it becomes an unquoted number."""
        self.events.append(event)

    def json(self, layout: Layout = "kineto") -> bytes:
        """The file as bytes.

        ``kineto``: as Kineto wrote it up to 2025. ``kineto-2026``: as torch 2.13 does, one key
        a line. ``compact``: one line. ``pretty``: indent 4. ``list``: the bare events.
        """
        head: Event = {"schemaVersion": 1, "deviceProperties": [{**_DEVICE, "id": self.device}]}
        if self.distributed:
            info = {"backend": self.backend, "rank": self.rank, "world_size": self.world_size}
            groups = list(self.groups.values())
            head["distributedInfo"] = {**info, "pg_count": len(groups), "pg_config": groups}
        head |= {"host_name": self.host} if self.host is not None else {}
        tail: Event = {"displayTimeUnit": "ms"}
        tail |= {"baseTimeNanoseconds": self.base_ns} if self.base_ns is not None else {}
        return _encode(head | self.metadata, self.events, tail, layout).encode()

    def write(self, path: Path, gz: bool | None = None, layout: Layout = "kineto") -> Path:
        """Write the file, compressed if ``gz`` is true, by default if its name ends in .gz."""
        data = self.json(layout)
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = path.suffix == ".gz" if gz is None else gz
        path.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)
        return path

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _complete(
        self, cat: str, name: str, pid: int, tid: int, ts: int, dur: int, args: Event
    ) -> None:
        place = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self.raw({**place, "ts": us(ts), "dur": us(dur), "args": args})

    def _work(self, cat: str, name: str, call: str, ts: int, dur: int, kw: Event) -> int:
        """GPU work, its flow, the runtime call and its flow: the order in which Kineto writes."""
        at = _launch_ns(ts, kw)
        stream, device = kw.pop("stream", 7), kw.pop("device", self.device)
        tid = kw.pop("tid", self.pid)
        correlation: int = kw.pop("correlation", None) or self._new_id()
        external = kw.pop("external_id", None) or correlation
        args = {"External id": external, "device": device, "stream": stream}
        args |= {"correlation": correlation, **kw}
        self._complete(cat, name, device, stream, ts, dur, args)
        if at is not None:
            args = {"External id": external, "cbid": 211, "correlation": correlation}
            self._flow("f", correlation, device, stream, ts)
            self._complete("cuda_runtime", call, self.pid, tid, at, 5000, args)
            self._flow("s", correlation, self.pid, tid, at)
        return correlation

    def _flow(self, ph: str, flow: int, pid: int, tid: int, ts: int) -> None:
        if self.flows:
            place = {"ph": ph, "id": flow, "pid": pid, "tid": tid, "ts": us(ts)}
            end = {"bp": "e"} if ph == "f" else {}
            self.raw({**place, "cat": "ac2g", "name": "ac2g", **end})


_DEVICE = {"name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_017_624_576, "numSms": 132}


def _times(ts_us: Time, dur_us: Time, kw: Event) -> tuple[int, int]:
    """Start and duration in ns, each given once: in us, or among the keywords in ns."""
    found = []
    for name, micros in (("ts", ts_us), ("dur", dur_us)):
        ns = kw.pop(f"{name}_ns", None)
        if (micros is None) == (ns is None):
            raise ValueError(f"give either {name}_us or {name}_ns")
        found.append(to_ns(micros) if micros is not None else int(ns))
    return found[0], found[1]


def _launch_ns(ts: int, kw: Event) -> int | None:
    launch, at = kw.pop("launch", True), kw.pop("launch_ns", None)
    if launch is False:
        return None
    if at is not None:
        return int(at)
    return ts - 10_000 if launch is True else to_ns(launch)


def _encode(head: Event, events: list[Event], tail: Event, layout: Layout) -> str:
    whole = {**head, "traceEvents": events, "traceName": "trace.json", **tail}
    if layout in ("list", "compact", "pretty"):
        return _dumps(events if layout == "list" else whole, 4 if layout == "pretty" else None)
    old = layout == "kineto"
    body = ",\n".join(f"  {{\n{_event(event, old)}\n  }}" for event in events)
    before, after = (head, {"traceName": "trace.json", **tail}) if old else (head | tail, {})
    keys = "".join(f"  {_dumps(key)}: {_dumps(value)},\n" for key, value in before.items())
    if not old:
        return f' {{\n{keys}  "traceEvents": [\n    \n{body}\n  ],"traceName": "trace.json" }}'
    rest = ",\n".join(f"  {_dumps(key)}: {_dumps(value)}" for key, value in after.items())
    return f'\n{{\n{keys}  "traceEvents": [\n{body}\n  ],\n{rest}\n}}\n'


def _event(event: Event, old: bool) -> str:
    """The lines of one event inside its braces, at Kineto's fixed indents."""
    lines: list[str] = []
    line: list[str] = []
    for key, value in event.items():
        # The old layout breaks before the time of a slice and after that of a flow.
        breaks = (
            key == "args" or (key == "ts" and "dur" in event) or (key == "cat" and "id" in event)
        )
        if line and (breaks or not old):
            lines.append("    " + ", ".join(line))
            line = []
        if key == "args":
            line.append(f'"args": {{\n      {_dumps(value)[1:-1]}\n    }}')
        else:
            line.append(f"{_dumps(key)}: {_dumps(value)}")
    return ",\n".join([*lines, "    " + ", ".join(line)] if line else lines)


def _dumps(value: object, indent: int | None = None) -> str:
    """JSON with each ``Decimal`` as the number it spells: json itself would need a float."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    text = json.dumps(value, indent=indent, default=lambda number: f"@number:{number:f}@")
    return re.sub(r'"@number:([-0-9.]+)@"', r"\1", text) if "@number:" in text else text
