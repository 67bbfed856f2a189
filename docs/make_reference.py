"""Write docs/analyzers.md from the analyzers' rows, or check that it is what they say.

python docs/make_reference.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path

from tracekit.analysis.base import Analyzer
from tracekit.analysis.registry import ANALYZERS

TARGET = Path(__file__).parent / "analyzers.md"
HEAD = """# Analyzers

Made by `python docs/make_reference.py` from the rows that the analyzers return; do not edit.

`tracekit report run.db -a NAME --by DIM --format json` prints the columns below as raw integers
and ratios, with `missing`: what the run cannot answer, and why. A value that is not available is
null, never 0.
"""


def section(analyzer: Analyzer) -> str:
    lines = [f"## {analyzer.name}", "", _paragraphs(analyzer.row.__doc__ or ""), ""]
    lines.append(
        f"Grouped by {', '.join(f'`{d}`' for d in analyzer.by)}; "
        f"by default by {', '.join(f'`{d}`' for d in analyzer.default_by)}."
    )
    lines += ["", "| column | unit | better | meaning |", "|---|---|---|---|"]
    for column in analyzer.columns:
        unit = "dimension" if column.is_dim else str(column.unit)
        doc = column.doc.replace("|", "\\|")
        lines.append(f"| `{column.name}` | {unit} | {column.better or ''} | {doc} |")
    return "\n".join(lines) + "\n"


def _paragraphs(doc: str) -> str:
    return "\n".join(line.strip() for line in doc.strip().splitlines())


def main() -> int:
    text = "\n".join([HEAD, *(section(analyzer) for analyzer in ANALYZERS)])
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print(f"{TARGET} is not what the analyzers say: run `make reference`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
