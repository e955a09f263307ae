"""What open browsers cost ingestion: the console in its own process, five pages of it in Chromium, events over HTTP."""
