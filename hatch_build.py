"""Compiles the C scanner of ``tracekit.ingest.scan``: a plain shared library, no Python inside.

hatchling calls the hook: a wheel gets a library of its own, an editable install one in the source
tree, where ctypes finds it. By hand, ``python hatch_build.py`` compiles in place.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

ROOT = Path(__file__).resolve().parent
FOLDER = "tracekit/ingest/scan"
LIBRARY = "_scan.so"
# $CFLAGS comes after these.
FLAGS = ("-O3", "-std=c11", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra")
# A C compiler from PyPI, for a machine that has none: 100 MB, so only there. Held to one series,
# for zig has not promised that `zig cc` stays as it is.
ZIG = "ziglang~=0.17.1"
# zig compiles for the very processor it runs on unless told not to, and a wheel travels.
ZIG_FLAGS = ("-mcpu=baseline",)
COMPILERS = ("cc", "gcc", "clang")


class BuildError(Exception):
    """What stands between the sources and the library, with the compiler's own words."""


def words(variable: str) -> list[str]:
    """The words of an environment variable, as a shell would split them."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise BuildError(f"${variable} is no command line: {error}") from error


def has_compiler() -> bool:
    return bool(os.environ.get("CC", "").strip()) or any(map(shutil.which, COMPILERS))


def compiler() -> list[str]:
    """``$CC``, else the first of cc, gcc and clang on PATH, else zig."""
    if named := words("CC"):
        return named
    for name in COMPILERS:
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc", *ZIG_FLAGS]
    raise BuildError(
        "no C compiler: neither $CC nor cc, gcc or clang on PATH; "
        f"install one, or run: {shlex.quote(sys.executable)} -m pip install '{ZIG}'"
    )


def sources(root: Path) -> list[Path]:
    """What is compiled, in a fixed order."""
    found = sorted((root / FOLDER).glob("*.c"))
    if not found:
        raise BuildError(f"{FOLDER} holds no .c file")
    return found


def stale(root: Path) -> bool:
    """Whether the library in the source tree is older than anything it is made of."""
    library = root / FOLDER / LIBRARY
    if not library.exists():
        return True
    made_of = [*sources(root), *(root / FOLDER).glob("*.h"), root / "hatch_build.py"]
    return max(path.stat().st_mtime_ns for path in made_of) > library.stat().st_mtime_ns


def compile_scanner(root: Path, library: Path) -> None:
    """Compiles into a file beside ``library``, then renames: a reader never sees half of it."""
    with tempfile.TemporaryDirectory(prefix=".scan-", dir=library.parent) as scratch:
        built = Path(scratch) / LIBRARY
        flags = [*FLAGS, *words("CFLAGS")]
        command = [*compiler(), *flags, "-o", str(built), *map(str, sources(root))]
        # Else zig leaves hundreds of files in the home directory.
        cache = {"ZIG_GLOBAL_CACHE_DIR": scratch, "ZIG_LOCAL_CACHE_DIR": scratch}
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace", check=False,
                env={**os.environ, **cache},
            )  # fmt: skip
        except OSError as error:
            raise BuildError(f"the C compiler {command[0]!r} does not start: {error}") from error
        if done.returncode:
            raise BuildError(
                f"the scanner does not compile (exit status {done.returncode} of "
                f"`{shlex.join(command)}`):\n{done.stdout.rstrip()}"
            )
        sys.stderr.write(done.stdout)  # warnings
        built.replace(library)


class ScannerHook(BuildHookInterface[BuilderConfig]):
    """Of the wheel target only: an sdist holds the sources and no library."""

    scratch: tempfile.TemporaryDirectory[str] | None = None

    def dependencies(self) -> list[str]:
        return [] if has_compiler() else [ZIG]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            self.build(version, build_data)
        except BuildError as error:
            self.app.abort(f"error: {error}")

    def build(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable":
            if stale(root):
                compile_scanner(root, root / FOLDER / LIBRARY)
            return
        # Never the library that lies in the tree: flags and machine of that one are unknown.
        self.scratch = tempfile.TemporaryDirectory(prefix="tracekit-scan-")
        library = Path(self.scratch.name) / LIBRARY
        compile_scanner(root, library)
        build_data["force_include"][str(library)] = f"{FOLDER}/{LIBRARY}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{plain_platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.scratch:
            self.scratch.cleanup()


def plain_platform() -> str:
    """The machine's own platform tag; manylinux and musllinux are a promise to be tested for."""
    return next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the scanner into the source tree.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--if-stale", action="store_true", help="only if a source is newer")
    choice.add_argument(
        "--requires", action="store_true", help="print the PyPI package of a compiler, if needed"
    )
    arguments = parser.parse_args()
    if arguments.requires:
        if not has_compiler():
            sys.stdout.write(f"{ZIG}\n")
        return
    try:
        if not arguments.if_stale or stale(ROOT):
            compile_scanner(ROOT, ROOT / FOLDER / LIBRARY)
    except BuildError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
