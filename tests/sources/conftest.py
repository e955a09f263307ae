"""The fixtures of the tests of sinks."""

from tests.sinks.conftest import log as log
from tests.sinks.conftest import queue as queue
from tests.sinks.conftest import sinks_url as sinks_url
