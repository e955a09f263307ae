"""Reading what a server says when it refuses."""

from __future__ import annotations

import httpx


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the kind of a problem, which has to be a whole one."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    assert problem["title"]
    assert problem["detail"]
    return answer.status_code, problem["type"].rpartition("/")[2]
