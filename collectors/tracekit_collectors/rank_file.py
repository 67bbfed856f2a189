"""The manifest of a rank, and the other words that it has for those who look on."""

from __future__ import annotations

import time
from pathlib import Path

from tracekit_collectors import log, notes, records
from tracekit_collectors.api import declared_mesh
from tracekit_collectors.patches import mesh_dims, observed
from tracekit_collectors.progress import Progress


class RankFile:
    """Keeps the manifest of this process in its file; a full disk ends no training.

    Attributes:
        manifest: As it stands.
        name: How the names of all files of this process begin.
    """

    def __init__(self, directory: Path, manifest: records.RankManifest) -> None:
        self.manifest = manifest
        self.name = records.stem(manifest.rank)
        self._directory = directory
        self._progress = Progress(directory, self.name)

    def trace_path(self) -> Path:
        """Where the trace of the present window goes."""
        return records.trace_path(self._directory, self.name, len(self.manifest.windows) - 1)

    def memory_path(self) -> Path:
        """Where the memory history of the present window goes."""
        return records.memory_path(self._directory, self.name, len(self.manifest.windows) - 1)

    def write(self) -> None:
        """Write it down, with what has been observed and stated since."""
        manifest = self.manifest
        manifest.notes = notes.stated()
        manifest.pipeline = dict(observed.pipeline)
        manifest.gathered = observed.gathered
        try:
            manifest.mesh = self._mesh() or manifest.mesh
            records.write_manifest(self._directory, self.name, manifest)
        except Exception as error:  # noqa: BLE001 - a full disk must not end training
            log.write(f"rank {manifest.rank}: manifest: {type(error).__name__}: {error}")

    def tell(self, doing: str, *, at_once: bool = False) -> None:
        """How far it is, every other second."""
        if at_once:
            self._progress.say(self.manifest.steps_seen, doing)
        else:
            self._progress.tell(self.manifest.steps_seen, doing, time.monotonic())

    def problem(self, text: str) -> None:
        """Something that a reader of the figures should know."""
        if text not in self.manifest.problems:
            self.manifest.problems.append(text)
            log.write(f"rank {self.manifest.rank}: {text}")

    def _mesh(self) -> list[records.MeshDim]:
        """What the program declares counts before what was seen of it."""
        rank = self.manifest.rank
        try:
            return declared_mesh(rank, self.manifest.world_size) or mesh_dims(rank)
        except ValueError as error:
            self.problem(str(error))
            return mesh_dims(rank)
