"""The terminal application: `tracekit tui run.db`. It reads a store and shows it."""
