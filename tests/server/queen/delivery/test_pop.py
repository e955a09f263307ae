from __future__ import annotations

import threading
import time

import httpx
import pytest

from tests.server.queen.client import QueenClient, data
from tests.server.server_process import RunningServer, run_server


def test_pop_sees_a_push_at_once_and_a_second_pop_is_empty(queen: QueenClient, queue: str) -> None:
    for number in range(20):
        queen.push(queue, [number], ids=[f"id{number}"])
        assert data(queen.pop(queue, autoAck="true", wait="false")) == [number]
    assert queen.http.get(f"/api/v1/pop/queue/{queue}").status_code == 204


def test_batch_limits_the_messages_of_all_partitions_together(queen: QueenClient, queue: str) -> None:
    for partition in "abc":
        queen.push(queue, range(4), partition)
    assert len(queen.pop(queue, batch=6, partitions=3)) == 6
    assert len(queen.pop(queue, batch=100, partitions=1)) == 4


def test_pop_of_one_partition_by_name(queen: QueenClient, queue: str) -> None:
    queen.push(queue, ["a"], "first one")
    queen.push(queue, ["b"], "Zweite/2", ids=["x"])
    assert data(queen.pop(queue, "Zweite%2F2")) == ["b"]
    assert data(queen.pop(queue, "first one")) == ["a"]
    assert queen.pop(queue, "third") == []


def test_pop_waits_for_a_queue_that_does_not_exist_yet(
    queen: QueenClient, queen_server: RunningServer, queue: str
) -> None:
    found: list[object] = []

    def wait() -> None:
        with httpx.Client(base_url=queen_server.url, timeout=30) as client:
            found.extend(data(QueenClient(client).pop(queue, wait="true", timeout=20000, consumerGroup="g")))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while waiting.is_alive() and not found:
        queen.push(queue, ["x"], ids=["only"])
        waiting.join(0.2)
    assert found == ["x"]


def test_new_subscription_to_a_missing_queue_gets_all_its_messages(queen: QueenClient, queue: str) -> None:
    assert queen.pop(queue, consumerGroup="g", subscriptionMode="new") == []
    queen.push(queue, ["x"])
    assert data(queen.pop(queue, consumerGroup="g", subscriptionMode="new")) == ["x"]


def test_pop_without_messages_returns_after_its_timeout(queen: QueenClient, queue: str) -> None:
    begun = time.monotonic()
    assert queen.http.get(f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": 300}).status_code == 204
    assert time.monotonic() - begun >= 0.3


def test_push_to_one_process_wakes_a_pop_in_another(
    queen: QueenClient, other_server: RunningServer, queue: str
) -> None:
    queen.configure(queue)
    found: list[object] = []

    def wait() -> None:
        with httpx.Client(base_url=other_server.url, timeout=30) as client:
            found.extend(data(QueenClient(client).pop(queue, wait="true", timeout=20000)))

    waiting = threading.Thread(target=wait)
    waiting.start()
    queen.push(queue, ["x"])
    waiting.join(25)
    assert found == ["x"]


def test_messages_for_a_disconnected_client_are_released(
    queen: QueenClient, queen_server: RunningServer, queue: str
) -> None:
    queen.configure(queue, leaseTime=600)
    for number in range(5):
        with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=queen_server.url, timeout=0.05) as client:
            client.get(f"/api/v1/pop/queue/{queue}", params={"wait": "true", "timeout": "30000"})
        queen.push(queue, [number], ids=[f"id{number}"])
        assert data(queen.pop(queue, wait="true", timeout=10000, autoAck="true")) == [number]


def test_stopping_server_answers_its_long_polls(database_url: str) -> None:
    with run_server(database_url) as running:
        answers: list[int] = []

        def wait() -> None:
            with httpx.Client(base_url=running.url, timeout=60) as client:
                answers.append(client.get("/api/v1/pop/queue/q", params={"wait": "1", "timeout": "50000"}).status_code)

        with httpx.Client(base_url=running.url, timeout=30) as client:
            QueenClient(client).configure("q")
            waiting = threading.Thread(target=wait)
            waiting.start()
            # A pop creates its group before it waits.
            while not QueenClient(client).get("/api/v1/consumer-groups"):
                pass
            running.process.terminate()
            waiting.join(20)
        assert answers == [204]
        assert running.process.wait(20) == 0


def test_autopilot_returns_the_chosen_sizes(queen: QueenClient, queue: str) -> None:
    queen.push(queue, range(3), "a")
    queen.push(queue, range(3), "b")
    answer = queen.get(f"/api/v1/pop/queue/{queue}", autopilot="true", frames="true")
    assert len(answer["messages"]) == 6
    assert answer["autopilot"] == {"partitions": 8, "batch": 200, "waitMs": 0}
    assert "conflation" in queen.get(f"/api/v1/pop/queue/{queue}", 400, conflation="true", consumerGroup="g")["error"]


def test_pop_from_all_queues_of_a_namespace(queen: QueenClient, queue: str) -> None:
    queen.push(f"{queue}.mail.out", ["a"])
    queen.push(f"{queue}.sms", ["b"])
    queen.push(queue, ["c"])
    queen.post("/api/v1/configure", {"queue": f"{queue}-configured", "namespace": queue, "task": "fax"})
    queen.push(f"{queue}-configured", ["d"])
    found: list[object] = []
    while answer := queen.get("/api/v1/pop", status=200 if len(found) < 3 else 204, namespace=queue):
        found += data(answer["messages"])
    assert sorted(map(str, found)) == ["a", "b", "d"]
    only = queen.get("/api/v1/pop", namespace=queue, task="mail", consumerGroup="g", wait="true", timeout=5000)
    assert (only["queue"], data(only["messages"])) == (f"{queue}.mail.out", ["a"])
    assert "namespace or task" in queen.get("/api/v1/pop", 400)["error"]


def test_browser_cannot_pop_for_a_page_of_another_site(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    path = f"/api/v1/pop/queue/{queue}?autoAck=true"
    # A request for an image or a link has no Origin, but the browser sends Sec-Fetch-Site.
    for site in ("cross-site", "same-site"):
        assert queen.http.get(path, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status_code == 403
    # A HEAD request would pop messages without returning them.
    refused = queen.http.head(path)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
    assert queen.http.get("/healthz", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
    for site in ("none", "same-origin"):
        queen.push(queue, [site], ids=[site])
        assert queen.http.get(path, headers={"Sec-Fetch-Site": site}).status_code == 200


def test_auto_acked_messages_have_no_lease(queen: QueenClient, queue: str) -> None:
    queen.push(queue, [1])
    (message,) = queen.pop(queue, autoAck="true")
    assert message["leaseId"] == ""
    assert queen.pop(queue) == []
    assert queen.ack(message)["noop"] is True


def test_new_group_starts_at_the_beginning_by_default(queen: QueenClient, queue: str) -> None:
    queen.push(queue, ["old"])
    assert data(queen.pop(queue, consumerGroup="all")) == ["old"]
    assert data(queen.pop(queue, consumerGroup="explicit", subscriptionMode="all")) == ["old"]
    # Consumers without a group never skip the backlog of the queue.
    assert data(queen.pop(queue, subscriptionMode="new")) == ["old"]
    for group, subscription in (
        ("new", {"subscriptionMode": "new"}),
        ("new-only", {"subscriptionMode": "new-only"}),
        ("now", {"subscriptionFrom": "now", "subscriptionMode": "all"}),
    ):
        assert queen.pop(queue, consumerGroup=group, **subscription) == []
        queen.push(queue, [group], f"made later for {group}", ids=[group])
        assert group in data(queen.pop(queue, consumerGroup=group, partitions=10, **subscription))
    assert "old" in data(queen.pop(queue, consumerGroup="x", subscriptionMode="from_beginning", partitions=10))
    assert "ISO" in queen.get(f"/api/v1/pop/queue/{queue}", 400, consumerGroup="y", subscriptionFrom="some")["error"]


def test_new_group_starts_at_a_timestamp(queen: QueenClient, queue: str) -> None:
    queen.push(queue, ["a"], ids=["a"])
    queen.push(queue, ["b"], ids=["b"])
    later = queen.pop(queue, batch=2)[1]["createdAt"]
    assert data(queen.pop(queue, batch=5, consumerGroup="g", subscriptionFrom=later)) == ["b"]
    naive = later.removesuffix("Z")
    assert data(queen.pop(queue, batch=5, consumerGroup="h", subscriptionFrom=naive)) == ["b"]


def test_delayed_message_is_not_popped_before_its_delay_ends(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, delayedProcessing=1)
    queen.push(queue, ["later"])
    assert queen.pop(queue) == []
    assert data(queen.pop(queue, wait="true", timeout=20000)) == ["later"]


def test_window_buffer_delays_a_partition_until_it_is_quiet(queen: QueenClient, queue: str) -> None:
    queen.configure(queue, windowBuffer=1)
    queen.push(queue, ["a"], ids=["a"])
    assert queen.pop(queue) == []
    queen.push(queue, ["b"], ids=["b"])
    assert data(queen.pop(queue, wait="true", timeout=20000, batch=10)) == ["a", "b"]
