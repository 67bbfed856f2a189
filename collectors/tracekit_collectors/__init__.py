"""Collectors: what runs in or beside the training process. Standard library, torch, pynvml only.

Importing this package costs next to nothing and starts nothing; a training script may call
:func:`note` whether or not it is being captured.
"""

from tracekit_collectors.notes import note

__all__ = ["note"]
