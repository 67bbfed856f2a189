"""Run a command so that its ranks are captured, and pass its life through unchanged.

The child keeps our process group, stdin, stdout and stderr: a terminal's Ctrl-C reaches it by
itself. Other signals are handed on once. Standard library only; the analysis comes later.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from tracekit_collectors import log, quiet, records
from tracekit_collectors.nvml import Sampler
from tracekit_collectors.options import Options
from tracekit_collectors.telemetry import OpenSink

_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def environment(options: Options, directory: Path) -> dict[str, str]:
    """The child's environment: ours, with the hooks first on its Python path; without them where
    nothing of the ranks is wanted."""
    if "torch" not in options.collect:
        return dict(os.environ)
    inject = str(Path(__file__).parent / "inject")
    ours = dict(os.environ)
    previous = ours.get("PYTHONPATH")
    ours["PYTHONPATH"] = inject if not previous else inject + os.pathsep + previous
    ours.update(options.to_environment(directory.resolve()))
    # In what the wrapper runs from the start, in a capture in code within our own calls only.
    ours.setdefault(quiet.VARIABLE, str(quiet.NONE))
    return ours


def run(
    command: Sequence[str],
    options: Options,
    directory: Path,
    open_sink: OpenSink,
    *,
    interval: float = 0.1,
    shared: bool = False,
) -> tuple[int, str | None]:
    """Run ``command`` to its end, with GPU telemetry into a sink every ``interval`` seconds.

    ``shared``: wrappers on other nodes use the directory too.

    Returns its status, negative for a signal, and what went wrong with our own part of it, if
    anything.

    Raises:
        OSError: the command cannot be started.
    """
    log.write_to(directory)
    sampler = Sampler(directory, open_sink, interval)
    path = records.run_path(directory, shared=shared)
    record: dict[str, Any] = {
        "format": records.FORMAT_VERSION,
        "command": list(command),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "start_ns": time.time_ns(),
    }
    child = subprocess.Popen(list(command), env=environment(options, directory))
    problem = _write(path, record)
    left_out = _no_telemetry(options, shared=shared)
    if left_out is None:
        sampler.start()
    status = _wait(child)
    sampler.stop()
    _name_the_dead(directory)
    problem = sampler.problem or problem
    telemetry = problem or left_out or "sampled"
    record |= {"end_ns": time.time_ns(), "exit_status": status, "telemetry": telemetry}
    # The command has ended as it ended: what we could not write is no reason to say otherwise.
    return status, _write(path, record) or problem


def _no_telemetry(options: Options, *, shared: bool) -> str | None:
    """Why this wrapper does not sample the GPUs; None where it does.

    Of the tasks that Slurm starts on a node one does: others would sample the same GPUs again, or,
    where each sees its own alone, give several of them one number.
    """
    if "nvml" not in options.collect:
        return "not asked for"
    task = os.environ.get("SLURM_LOCALID", "0")
    return f"left to task 0 of this node, this is task {task}" if shared and task != "0" else None


def _write(path: Path, record: dict[str, Any]) -> str | None:
    """Write it, or say why that could not be."""
    try:
        records.write_json(path, record)
    except OSError as error:
        return f"{path}: cannot be written: {error.strerror or error}"
    return None


def _name_the_dead(directory: Path) -> None:
    """A rank that was killed (SIGKILL, SIGABRT) could not say so: its manifest still says started.

    Ranks of other nodes may be in the directory too, and theirs are not ours to judge.
    """
    for path in records.manifests_in(directory):
        try:
            manifest = records.read_manifest(path)
            is_here = f".{records.host_name()}." in path.name
            if manifest.state == "started" and is_here and not _lives(manifest.pid):
                manifest.state = "incomplete: the process ended by a signal, an abort or os._exit"
                records.write_manifest(directory, path.stem, manifest)
        except (OSError, ValueError, TypeError):
            continue


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _wait(child: subprocess.Popen[Any]) -> int:
    """Wait for the child alone: what it leaves behind does not hold us."""

    def hand_on(number: int, frame: FrameType | None) -> None:
        if child.poll() is None:
            child.send_signal(number)

    def leave(number: int, frame: FrameType | None) -> None:
        """Ctrl-C has reached the child already; we wait for how it ends."""

    previous = {number: signal.signal(number, hand_on) for number in _FORWARDED}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, leave)
    try:
        return child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def end_like(status: int) -> int:
    """Exit status for a child's: its own, or death by the same signal."""
    if status >= 0:
        return status
    number = -status
    if number in (signal.SIGKILL, signal.SIGSTOP):
        return 128 + number
    signal.signal(number, signal.SIG_DFL)
    # The child's core dump is what somebody wants to see: ours would lie in its place.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.kill(os.getpid(), number)
    return 128 + number
