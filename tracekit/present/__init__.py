"""Presentation: the only place that makes text of numbers."""
