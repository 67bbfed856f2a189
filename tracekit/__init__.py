"""tracekit: where the step time of a parallel training run goes.

The package holds the analysis side: ``ingest`` (files to store), ``store`` (one DuckDB file),
``analysis`` (one exact definition per figure), ``present`` (text of numbers) and ``cli``.
Nothing here is ever loaded into a training process, and nothing here needs torch.
"""

__version__ = "0.1.0"
