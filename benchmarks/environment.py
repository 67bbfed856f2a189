"""The environment that HTA and orjson run in: apart from tracekit's, and made once."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from rivals import probe

# With pandas 3, HTA 0.5 fails on many a trace ("Invalid value for dtype int16") and is 5 to 8 %
# slower where it does not.
HTA_PACKAGES = {
    "HolisticTraceAnalysis": "0.5.0",
    "numpy": "2.4.6",
    "orjson": "3.13.0",
    "pandas": "2.3.3",
}
OWN_PACKAGES = ("tracekit", "duckdb", "pyarrow")


def versions(python: Path, packages: list[str]) -> dict[str, str]:
    """What is installed in an environment."""
    _, said = probe(python, "versions", {"packages": packages})
    return {package: str(version) for package, version in said["answer"].items()}


def environment(folder: Path) -> Path:
    """The Python of HTA's environment, made unless it is there and works."""
    python = folder / "bin" / "python"
    if python.exists() and HTA_PACKAGES.items() <= versions(python, list(HTA_PACKAGES)).items():
        check = [str(python), "-c", "import orjson, hta.trace_analysis"]
        if subprocess.run(check, check=False, stderr=subprocess.DEVNULL).returncode == 0:
            return python
    print(f"making HTA's environment in {folder} (about a minute)", file=sys.stderr)
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    pins = [f"{package}=={version}" for package, version in HTA_PACKAGES.items()]
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins]
    subprocess.run(pip, check=True)
    return python
