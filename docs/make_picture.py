"""Draw docs/images/timeline.svg: the TUI's timeline of a run.

python docs/make_picture.py DATABASE
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from tracekit.store import open_run
from tracekit_tui.app import TracekitApp

TARGET = Path(__file__).parent / "images" / "timeline.svg"


async def main(database: Path) -> None:
    with open_run(database) as reader:
        app = TracekitApp(reader)
        async with app.run_test(size=(110, 17)) as pilot:
            for key in ("2", "n", "n", "e"):
                await pilot.press(key)
                await pilot.pause(1)
            picture = app.export_screenshot(title=f"tracekit tui {database.name}")
    # No font from elsewhere: the reader's own monospace font does.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
