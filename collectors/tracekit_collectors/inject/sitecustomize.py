"""Loaded by every Python child of a wrapped command: arm the hooks, then step aside.

Standard library only, nothing that raises, nothing on stdout or stderr. The command's own
``sitecustomize`` is loaded as if this one were not there.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up


def _arm() -> None:
    if os.environ.get("TRACEKIT_OFF") or not os.environ.get("TRACEKIT_CAPTURE"):
        return
    package = os.path.dirname(_HERE)  # noqa: PTH120
    if "tracekit_collectors" not in sys.modules:
        # By its place: the child may be another Python, where it is not installed.
        spec = importlib.util.spec_from_file_location(
            "tracekit_collectors",
            os.path.join(package, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[package],
        )
        if spec is None or spec.loader is None:
            return
        module = importlib.util.module_from_spec(spec)
        sys.modules["tracekit_collectors"] = module
        spec.loader.exec_module(module)
    from tracekit_collectors import hooks

    hooks.arm()


def _hand_on() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


# contextlib would cost start-up
try:  # noqa: SIM105
    _arm()
except Exception:  # noqa: BLE001, S110 - the command must run whatever happens to us
    pass
_hand_on()
