"""The push endpoint: from a request body to a committed push."""
