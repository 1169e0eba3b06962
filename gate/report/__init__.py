"""Renderings of one `result.json`: HTML, Markdown and JUnit. None of them judges anything."""
