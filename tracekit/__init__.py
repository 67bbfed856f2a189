"""tracekit: where the step time of a parallel training run goes.

The package holds the analysis side: ``ingest`` (files to store), ``store`` (one DuckDB file),
``analysis`` (one exact definition per figure), ``present`` (text of numbers) and ``cli``. None of
these is ever loaded into a training process, and none needs torch.

A training script that likes to say more than the wrapper can see uses what this module itself
offers, which loads the collectors and nothing else: :func:`capture`, :func:`step`,
:func:`annotate`, :func:`pipeline_action`, :func:`declare_mesh` and :func:`note`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracekit_collectors.api import annotate, capture, declare_mesh, pipeline_action, step
    from tracekit_collectors.notes import note

__version__ = "0.1.0"
__all__ = ["annotate", "capture", "declare_mesh", "note", "pipeline_action", "step"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from tracekit_collectors import api, notes

        return getattr(notes if name == "note" else api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
