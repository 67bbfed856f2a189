"""The text of a generated trace: what each section of the file says of the calls of one step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from workload import (
    AUTOGRAD,
    BEGIN_NS,
    COMM_STREAM,
    FORWARD,
    LAYERS,
    MAIN,
    PID,
    REDUCE,
    STEP_NS,
    Call,
)

DEPTH = 4  # ids that a call takes
FORWARD_CALLS = LAYERS * len(FORWARD)
RANKS = str(list(range(8)))


def us(ns: int) -> str:
    """Microseconds with three decimals, as Kineto writes them."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def _event(cat: str, name: str, tid: int, ns: int, dur: int, args: str, pid: int = PID) -> str:
    # us() spelled out: this function is most of the time of the generator.
    return (
        f',\n  {{\n    "ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid},\n'
        f'    "ts": {ns // 1000}.{ns % 1000:03d}, "dur": {dur // 1000}.{dur % 1000:03d},\n'
        f'    "args": {{\n      {args}\n    }}\n  }}'
    )


def _flow(ph: str, cat: str, number: int, tid: int, ns: int, pid: int = PID) -> str:
    end = ', "bp": "e"' if ph == "f" else ""
    return (
        f',\n  {{\n    "ph": "{ph}", "id": {number}, "pid": {pid}, "tid": {tid}, "ts": {us(ns)},\n'
        f'    "cat": "{cat}", "name": "{cat}"{end}\n  }}'
    )


def operators(step: int, calls: list[Call]) -> Iterator[str]:
    """Operators, their links from forward to backward, and what they allocate."""
    yield _event(
        "user_annotation", f"ProfilerStep#{step + 3}", MAIN, BEGIN_NS + step * STEP_NS,
        STEP_NS - 1_000_000, f'"External id": {step}, "Record function id": 0, "Ev Idx": {step}',
    )  # fmt: skip
    total = 5 << 30
    for call in calls:
        op, noise, first = call.op, call.noise, call.number * DEPTH
        tid = AUTOGRAD if call.back else MAIN
        begin, dur = call.cpu_ns + 6_000 + noise % 911, 24_000 + (noise >> 10) % 4_099
        rows = op.rows + 8 * (call.layer % 5)
        size = rows * op.columns * 2
        shape = (
            f'"Concrete Inputs": ["", "", "{call.layer}"], '
            '"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], '
            f'"Input Strides": [[{op.columns}, 1], [1, {rows}], []], '
            f'"Input Dims": [[{rows}, {op.columns}], [{op.columns}, {rows}], []]'
        )
        link = ""
        if call.back:
            sequence = step * FORWARD_CALLS + (noise >> 40) % FORWARD_CALLS
            link = f'"Sequence number": {sequence}, "Fwd thread id": 1, '
            yield _event(
                "cpu_op", f"autograd::engine::evaluate_function: {op.name}", tid,
                begin - 2_000, dur + 3_000 + noise % 501,
                f'"External id": {first},"Record function id": {first}, {link}"Ev Idx": {first}',
            )  # fmt: skip
            if op is not REDUCE:
                yield _flow("f", "fwdbwd", call.number, tid, begin)
        cat = "user_annotation" if op is REDUCE else "cpu_op"
        yield _event(
            cat, op.name, tid, begin, dur,
            f'"External id": {first + 1},"Record function id": 0, {link}{shape}, '
            f'"Ev Idx": {first + 1}',
        )  # fmt: skip
        yield _event(
            "cpu_op", op.inner, tid, begin + 1_000 + (noise >> 20) % 907,
            dur - 4_000 - (noise >> 30) % 1_009,
            f'"External id": {first + 2},"Record function id": 0, {shape}, "Ev Idx": {first + 2}',
        )  # fmt: skip
        if not call.back:
            yield _flow("s", "fwdbwd", call.number, tid, begin)
        total += size if noise & 1 else -size
        yield (
            ',\n  {\n    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",\n'
            f'    "pid": {PID}, "tid": {tid}, "ts": {us(begin + 3_000 + noise % 887)},\n'
            f'    "args": {{\n      "Ev Idx": {first + 3}, "Device Type": 1, "Device Id": 0, '
            f'"Addr": {139926520725504 + 512 * (noise % 60_000_000)}, '
            f'"Bytes": {size if noise & 1 else -size}, "Total Allocated": {total}, '
            f'"Total Reserved": {total + (9 << 30)}\n    }}\n  }}'
        )


def python_calls(step: int, calls: list[Call]) -> Iterator[str]:
    """The Python frames that call the operators of the forward pass."""
    for call in calls:
        if call.back:
            continue
        op, noise, first = call.op, call.noise, call.number * DEPTH
        frames = (
            f"nn.Module: {op.module}_{call.layer}",
            f"torch/nn/modules/{op.source}: forward",
            f"<built-in function {op.name.removeprefix('aten::')}>",
        )
        for depth, frame in enumerate(frames):
            parent = first + depth - 1 if depth else step
            module = f'"Python module id": {call.layer}, ' if depth == 0 else ""
            yield _event(
                "python_function", frame, MAIN,
                call.cpu_ns + depth * 1_700 + (noise >> (8 * depth)) % 997,
                36_000 - depth * 3_800 + (noise >> (12 + 8 * depth)) % 1_013,
                f'"Python parent id": {parent}, "Python id": {first + depth}, {module}'
                f'"Ev Idx": {10_000_000 + first + depth}',
            )  # fmt: skip


def device(step: int, calls: list[Call]) -> Iterator[str]:
    """Launches, their links, and the kernels; the step on the device."""
    yield _event(
        "gpu_user_annotation", f"ProfilerStep#{step + 3}", 7, calls[0].gpu_ns,
        calls[-1].gpu_ns - calls[0].gpu_ns, f'"External id": {step}', pid=0,
    )  # fmt: skip
    for call in calls:
        op, noise, number = call.op, call.noise, call.number + 1
        tid, stream = AUTOGRAD if call.back else MAIN, COMM_STREAM if op is REDUCE else 7
        launch, external = call.cpu_ns + 16_000 + (noise >> 5) % 2_003, call.number * DEPTH + 2
        yield _event(
            "cuda_runtime", "cudaLaunchKernelExC" if op is REDUCE else "cudaLaunchKernel", tid,
            launch, 4_000 + (noise >> 15) % 3_001,
            f'"External id": {external}, "cbid": 211, "correlation": {number}',
        )  # fmt: skip
        yield _flow("s", "ac2g", number, tid, launch)
        collective = (
            f', "Collective name": "allreduce", "In msg nelems": {op.columns}, '
            f'"Out msg nelems": {op.columns}, "Group size": 8, "dtype": "BFloat16", '
            '"In split size": "[]", "Out split size": "[]", "Process Group Name": "0", '
            f'"Process Group Description": "default_pg", "Process Group Ranks": "{RANKS}"'
        )
        blocks = 64 + 8 * (call.layer % 9)
        yield _event(
            "kernel", op.kernel, stream, call.gpu_ns, call.gpu_dur_ns,
            f'"External id": {external},      "queued": 0, "device": 0, "context": 1,      '
            f'"stream": {stream}, "correlation": {number},      "registers per thread": 96,      '
            f'"shared memory": {op.rows},      "blocks per SM": {blocks / 132:.6f},      '
            f'"warps per SM": {blocks / 33:.6f},      "grid": [{blocks}, 1, 1],      '
            '"block": [128, 1, 1],      "est. achieved occupancy %": '
            f"{noise % 60}{collective if op is REDUCE else ''}",
            pid=0,
        )  # fmt: skip
        yield _flow("f", "ac2g", number, stream, call.gpu_ns, pid=0)


SECTIONS: tuple[Callable[[int, list[Call]], Iterator[str]], ...] = (
    operators,
    python_calls,
    device,
)
