"""Settings of the server."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings
from penstock.server.settings import ServerSettings


def test_settings_are_read_from_the_environment() -> None:
    environ = {
        "PENSTOCK_WORKERS": "3",
        "PENSTOCK_CORS_ORIGINS": "https://a.example, http://b.example:1",
        "PENSTOCK_HOST": "",
    }
    settings = ServerSettings.from_env(Settings(), environ, port=7000, host=None)
    assert (settings.workers, settings.port, settings.host) == (3, 7000, "127.0.0.1")
    assert settings.cors_origins == ("https://a.example", "http://b.example:1")
    for wrong in ({"PENSTOCK_WORKERS": "0"}, {"PENSTOCK_WORKERS": "two"}, {"PENSTOCK_REQUIRE_ACCESS": "maybe"}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            ServerSettings.from_env(Settings(), wrong)


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com", "")),  # noqa: S104
    ],
)
def test_access_control_is_on_beyond_loopback(host: str, is_loopback: bool) -> None:
    assert ServerSettings(Settings(), host).is_loopback is is_loopback
    assert ServerSettings(Settings(), host).has_access_control is not is_loopback
    assert ServerSettings(Settings(), host, require_access=True).has_access_control
