"""The architecture page agrees with the source tree."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text()
SOURCE = ROOT / "src" / "penstock"
#: Folders of data, which the page describes by their kind.
DATA = {"sql", "assets", "jvm", "migrations"}


def test_every_path_on_the_page_exists() -> None:
    paths = set(re.findall(r"`((?:[a-z_]+/)+(?:\w+\.(?:py|java|sql))?)`", PAGE)) - {"site/", "src/penstock/", "sql/"}
    assert len(paths) > 30
    assert sorted(path for path in paths if not (SOURCE / path).exists()) == []


def test_every_package_is_on_the_page() -> None:
    packages = {file.parent for file in SOURCE.rglob("*.py")} - {SOURCE}
    folders = {package.relative_to(SOURCE).as_posix() for package in packages if not DATA & set(package.parts)}
    assert sorted(folder for folder in folders if f"`{folder}/`" not in PAGE) == []
