"""Parts of stages; no stage itself."""
