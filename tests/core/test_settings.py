from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.core.settings import Settings, default_data_dir
from tests.python_process import as_root, run_python


def test_without_any_variable_the_database_is_embedded() -> None:
    settings = Settings.from_env({})
    assert settings == Settings()
    assert settings.database_url is None
    assert settings.data_dir == default_data_dir()
    assert str(settings.data_dir) in settings.redacted_url


def test_the_data_directory_of_root_is_reachable_for_other_accounts() -> None:
    home = Path("~").expanduser()
    assert (default_data_dir() == Path("/var/lib/penstock")) == (os.geteuid() == 0)
    assert (home in default_data_dir().parents) == (os.geteuid() != 0)


def test_penstock_database_url_precedes_database_url_and_the_variables_of_libpq() -> None:
    env = {"PENSTOCK_DATABASE_URL": "host=ours", "DATABASE_URL": "host=common", "PGHOST": "libpq"}
    assert Settings.from_env(env).database_url == "host=ours"
    del env["PENSTOCK_DATABASE_URL"]
    assert Settings.from_env(env).database_url == "host=common"
    del env["DATABASE_URL"]
    assert Settings.from_env(env).database_url == ""


@pytest.mark.parametrize("name", ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGSERVICE"])
def test_a_variable_of_libpq_that_selects_a_server_is_used(name: str) -> None:
    assert Settings.from_env({name: "1"}).database_url == ""


def test_a_variable_of_libpq_that_only_selects_a_user_is_ignored() -> None:
    assert Settings.from_env({"PGUSER": "me", "PGPASSWORD": "x"}).database_url is None


def test_an_empty_variable_counts_as_not_set() -> None:
    env = {"PENSTOCK_DATABASE_URL": "", "DATABASE_URL": " ", "PGHOST": "", "PENSTOCK_POOL_SIZE": ""}
    assert Settings.from_env(env) == Settings()


def test_every_setting_has_its_variable(tmp_path: Path) -> None:
    settings = Settings.from_env(
        {
            "PENSTOCK_DATABASE_URL": "postgresql://db/events",
            "PENSTOCK_READER_URL": "postgresql://reader@db/events",
            "PENSTOCK_DATA_DIR": str(tmp_path),
            "PENSTOCK_POOL_SIZE": "3",
            "PENSTOCK_MAX_EVENT_BYTES": "2048",
            "PENSTOCK_AUTO_UPGRADE": "0",
            "PENSTOCK_LOG_LEVEL": "debug",
            "PENSTOCK_FAST_DATABASE": "0",
            "PENSTOCK_TRACING": "1",
            "PENSTOCK_URL": "https://penstock:6632",
            "PENSTOCK_API_KEY": "key",
            "PENSTOCK_TLS_CA_FILE": "/etc/ca.pem",
            "PENSTOCK_RETRY_SECONDS": "1.5",
        }
    )
    assert settings == Settings(
        database_url="postgresql://db/events",
        reader_url="postgresql://reader@db/events",
        data_dir=tmp_path,
        pool_size=3,
        max_event_bytes=2048,
        auto_upgrade=False,
        log_level="DEBUG",
        fast_database=False,
        tracing=True,
        url="https://penstock:6632",
        api_key="key",
        tls_ca_file=Path("/etc/ca.pem"),
        retry_seconds=1.5,
    )


def test_overrides_win_and_their_variables_are_not_read() -> None:
    env = {"PENSTOCK_POOL_SIZE": "many", "PENSTOCK_DATABASE_URL": "host=db"}
    settings = Settings.from_env(env, pool_size=2, database_url=None)
    assert settings.pool_size == 2
    assert settings.database_url is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PENSTOCK_DATABASE_URL", "mysql://app:s3cret@db/events"),
        ("PENSTOCK_DATABASE_URL", "postgresql+psycopg://app:s3cret@db/events"),
        ("DATABASE_URL", "host=db password s3cret"),
        ("PENSTOCK_DATA_DIR", "relative/path"),
        ("PENSTOCK_DATA_DIR", "~nobody-of-that-name/path"),
        ("PENSTOCK_POOL_SIZE", "many"),
        ("PENSTOCK_POOL_SIZE", "0"),
        ("PENSTOCK_MAX_EVENT_BYTES", "-1"),
        ("PENSTOCK_MAX_EVENT_BYTES", "1073741824"),
        ("PENSTOCK_AUTO_UPGRADE", "perhaps"),
        ("PENSTOCK_LOG_LEVEL", "loud"),
    ],
)
def test_a_bad_value_is_refused_with_the_name_of_its_variable(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^{name} ") as caught:
        Settings.from_env({name: value})
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_relative_data_directory_is_refused_with_the_absolute_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    with pytest.raises(
        ConfigurationError, match="is 'share/events': set it to an absolute path, such as /usr/share/events"
    ):
        Settings.from_env({"PENSTOCK_DATA_DIR": "share/events"})


def test_a_relative_data_directory_is_refused_as_an_argument() -> None:
    with pytest.raises(ConfigurationError, match="PENSTOCK_DATA_DIR is 'events', which is not an absolute path"):
        Settings(data_dir=Path("events"))


@as_root
@pytest.mark.parametrize("url", ["", "host=db"])
def test_a_user_without_a_home_needs_a_database_or_a_directory(url: str) -> None:
    output = run_python(
        """
        import os, sys
        from penstock.core.errors import ConfigurationError
        from penstock.core.settings import Settings

        os.environ.pop("HOME", None)
        os.setuid(54321)
        try:
            print("fine", Settings.from_env({"PENSTOCK_DATABASE_URL": sys.argv[1]}).database_url)
        except ConfigurationError as error:
            print(error)
        """,
        url,
    )
    assert output.startswith(
        "fine host=db" if url else "PENSTOCK_DATA_DIR is 'penstock', which is not an absolute path"
    )


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:s3cret@db:5433/events",
        "postgresql://app@db/events?password=s3cret",
        "postgresql://app:s3cret@one:1,two:2/events",
        "host=db user=app password='s3cret' sslpassword=s3cret dbname=events",
    ],
)
def test_no_password_is_printed(url: str) -> None:
    settings = Settings(database_url=url)
    assert "s3cret" not in f"{settings} {settings!r} {settings.redacted_url}"
    assert "user=app" in settings.redacted_url
    assert "dbname=events" in settings.redacted_url


def test_the_log_levels_are_those_of_logging() -> None:
    from penstock.core.settings import LOG_LEVELS

    assert set(LOG_LEVELS) <= set(logging.getLevelNamesMapping())
