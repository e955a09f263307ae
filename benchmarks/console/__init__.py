"""The cost of open browsers for ingestion: a console process, five pages in Chromium, events over HTTP."""
