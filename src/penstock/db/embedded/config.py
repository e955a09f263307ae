"""Configuration of the embedded PostgreSQL: Penstock's in ``penstock.conf``, the user's in ``local.conf``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.db.embedded.postmaster import PORT
from penstock.db.embedded.secure_files import create_file

_DEFAULTS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # chunks are compressed already
    "jit": "off",  # compiling short statements costs more than it saves
    "fsync": "on",
    "synchronous_commit": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
    "log_filename": "postgresql-%a.log",
    "log_truncate_on_rotation": "on",
    "log_rotation_age": "1d",
    "log_rotation_size": "0",
}


def write_config(directory: Path, *, data: Path, socket_dir: Path, log_dir: Path, options: Mapping[str, str]) -> None:
    """Write ``penstock.conf``. ``local.conf`` overrides all settings but those of the socket and the log."""
    quoted_socket_dir = str(socket_dir).replace('"', '""')
    fixed = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{quoted_socket_dir}"',
        "unix_socket_permissions": "0700",
        "logging_collector": "on",
        "log_directory": str(log_dir),
    }
    lines = [
        "# Written by Penstock before each start. Put your own settings into local.conf.",
        f"include '{data.name}/postgresql.conf'",
        *(f"{name} = {_quote(value)}" for name, value in {**_DEFAULTS, **options}.items()),
        "include_if_exists 'local.conf'",
        *(f"{name} = {_quote(value)}" for name, value in fixed.items()),
    ]
    with create_file(directory / "penstock.conf", 0o644) as file:
        file.write("\n".join(lines) + "\n")
    if not (local_conf := directory / "local.conf").exists():
        with create_file(local_conf, 0o644) as file:
            file.write("# Your own settings for the embedded PostgreSQL: name = 'value'\n")


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"
