"""The line at the top: the screens with their keys, and the run."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget


class Nav(Widget):
    """Names of the screens, by their first words where they do not fit; a click goes there."""

    class Chosen(Message):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, titles: Sequence[str], active: int, run: str) -> None:
        super().__init__()
        self._titles = titles
        self._active = active
        self._run = run

    def render(self) -> Content:
        parts: list[Content | str | tuple[str, str]] = []
        for number, text in enumerate(self.texts(self.size.width)):
            active = number == self._active
            key, name = text[:3], text[3:]
            parts.append((key, "bold $background on $primary" if active else "$primary on $panel"))
            parts.append((name, "bold $background on $primary" if active else "on $panel"))
        content = Content.assemble(*parts)
        room = self.size.width - content.cell_length - 2
        if len(self._run) <= room:
            name = self._run.rjust(self.size.width - content.cell_length - 1)
            content = Content.assemble(content, (name, "$tk-muted on $panel"))
        return content

    def texts(self, width: int) -> list[str]:
        """`` 3 Pipeline bubble `` and so on, in at most ``width`` cells."""
        texts = [f" {number} {title} " for number, title in enumerate(self._titles, start=1)]
        words = [title.split()[0] for title in self._titles]
        most = max(map(len, words), default=0)
        while sum(map(len, texts)) > width and most > 1:
            texts = [f" {n} {_cut(word, most)} " for n, word in enumerate(words, start=1)]
            most -= 1
        return texts

    def on_click(self, event: events.Click) -> None:
        past = 0
        for number, text in enumerate(self.texts(self.size.width)):
            past += len(text)
            if event.x < past:
                self.post_message(self.Chosen(number))
                return


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(1, most - 1)].rstrip() + "…"
