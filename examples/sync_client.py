"""The synchronous client: several threads share it.

python examples/sync_client.py
"""

import threading

from penstock import SyncPenstock

QUEUE = "example-threads"
COUNT = 100


def main() -> None:
    done: list[int] = []
    with SyncPenstock() as q:
        q.queue(QUEUE).delete()
        q.queue(QUEUE).create()
        q.queue(QUEUE).push([{"data": n, "key": f"lane-{n % 10}"} for n in range(COUNT)])

        def work() -> None:
            # A key is leased to one worker at a time, so its order is kept.
            reader = q.queue(QUEUE).group("workers").batch(5).wait(True).timeout_millis(500)
            while events := reader.pop():
                done.extend(event.data for event in events)
                q.ack(events)

        workers = [threading.Thread(target=work) for _ in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        lag = q.queue(QUEUE).group("workers").lag()
        q.queue(QUEUE).delete()

    lanes = [[n for n in done if n % 10 == lane] for lane in range(10)]
    if lanes != [list(range(lane, COUNT, 10)) for lane in range(10)] or lag:
        raise SystemExit(f"something was lost, doubled or out of order (lag {lag}): {lanes}")
    print(f"{len(done)} events, done by {len(workers)} threads, each key in order.")


main()
