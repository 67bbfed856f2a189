"""Reference training loops: one small language model, trained for real, one file a paradigm.

Run one with `python -m tracekit_loops.NAME` (one process) or under torchrun (several). They are
programs to profile, so they know nothing of the profiler: all they share with it is
`tracekit_collectors.note`, which does nothing outside a capture.
"""
