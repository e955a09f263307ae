"""Checks of problem+json responses."""

from __future__ import annotations

import httpx


def problem_kind(response: httpx.Response) -> tuple[int, str]:
    """Return the status and the kind of a complete problem."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    problem = response.json()
    assert problem["status"] == response.status_code
    assert problem["title"]
    assert problem["detail"]
    return response.status_code, problem["type"].rpartition("/")[2]
