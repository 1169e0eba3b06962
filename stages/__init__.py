"""What is proven: one file per stage, found by its name. ``stages.shared`` holds what several stages have in common."""
