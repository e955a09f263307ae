"""The transport of a client: the log in this process, or a server over HTTP. Both have the same methods.

A client opens its transport, calls it concurrently from one event loop, and closes it. The transport raises the errors
of :mod:`penstock.core.errors`. A call that is cancelled leaves no lease behind.
"""

from __future__ import annotations

from penstock.client.database import DatabaseTransport
from penstock.client.http.transport import HttpTransport

Transport = DatabaseTransport | HttpTransport
