"""What the client tests run in: libraries of ours, and the frameworks' virtual environment.

That one is made once, then kept. It borrows torch from the environment of the tests, and nothing
of tracekit is installed in it: the hooks must find their own way in.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import hatch_build

_ROOT = Path(__file__).parents[2]
_PINS = Path(__file__).with_name("frameworks.txt")


def library(source: str, path: Path) -> None:
    """Compile a C file beside this one into a shared library."""
    flags = ["-std=c11", "-D_POSIX_C_SOURCE=199309L", "-shared", "-fPIC", "-Wall", "-Wextra"]
    cache = {name: str(path.parent) for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR")}
    done = subprocess.run(
        [*hatch_build.compiler(), *flags, "-o", str(path), str(Path(__file__).with_name(source))],
        capture_output=True, text=True, check=False, env={**os.environ, **cache},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def frameworks() -> Path:
    """Its folder of commands.

    Raises:
        RuntimeError: it cannot be made; says what pip said.
    """
    torch = subprocess.run(
        [sys.executable, "-m", "pip", "list", "--format", "freeze"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    base = sysconfig.get_path("purelib")
    stated = (_PINS.read_text(), torch, sys.version, base)
    digest = hashlib.sha256("\n".join(stated).encode()).hexdigest()[:12]
    home = _ROOT / ".venvs"
    home.mkdir(exist_ok=True)
    folder = home / f"frameworks-{digest}"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers of pytest may want it
        if not (folder / ".ready").exists():
            for old in home.glob("frameworks-*"):
                shutil.rmtree(old)
            _make(folder, base)
            (folder / ".ready").touch()
    return folder / "bin"


def _make(folder: Path, base: str) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    (folder / "lib" / Path(base).parent.name / "site-packages" / "base.pth").write_text(base + "\n")
    # DeepSpeed asks for torch while it is built.
    command = [folder / "bin" / "pip", "install", "--quiet", "--no-build-isolation"]
    done = subprocess.run(
        [*map(str, command), "--disable-pip-version-check", "--requirement", str(_PINS)],
        capture_output=True, text=True, check=False, env={**os.environ, "DS_BUILD_OPS": "0"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the frameworks cannot be installed: {done.stderr[-2000:]}")
