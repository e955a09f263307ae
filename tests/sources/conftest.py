"""The sources' tests have what the sinks' have: one database for a module, and queues of their own."""

from tests.sinks.conftest import log as log
from tests.sinks.conftest import queue as queue
from tests.sinks.conftest import sinks_url as sinks_url
