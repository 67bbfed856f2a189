"""Loaded by every Python child of a wrapped command: arm the hooks, then step aside.

Standard library only, nothing that raises, nothing on stdout or stderr. The command's own
``sitecustomize`` is loaded as if this one were not there.
"""

import os
import sys
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib costs start-up


def _load(name: str, path: "list[str]") -> None:  # quoted: any Python loads this
    """Import from these folders. What importlib.util would do for it costs a child 3 ms."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or spec.loader is None:
        return
    module = type(sys)(name)
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__package__ = name if spec.submodule_search_locations else ""
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _arm() -> None:
    if os.environ.get("TRACEKIT_OFF") or not os.environ.get("TRACEKIT_CAPTURE"):
        return
    if "tracekit_collectors" not in sys.modules:
        # By its place: the child may be another Python, where it is not installed.
        parents = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120
        _load("tracekit_collectors", [parents])
    from tracekit_collectors import hooks

    hooks.arm()


def _hand_on() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != _HERE]
    _load("sitecustomize", sys.path)


# contextlib would cost start-up
try:  # noqa: SIM105
    _arm()
except Exception:  # noqa: BLE001, S110 - the command must run whatever happens to us
    pass
_hand_on()
