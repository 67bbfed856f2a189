"""Analyzers: one exact definition per figure, each a typed row and one SQL query."""
