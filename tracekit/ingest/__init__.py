"""Ingest: files of a run into its store."""
