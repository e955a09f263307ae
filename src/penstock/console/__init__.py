"""The console: pages in a browser over everything that Penstock knows, in a process of their own."""
