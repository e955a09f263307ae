"""Several threads share the synchronous client.

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
        q.queue(QUEUE).push([{"data": n, "key": f"key-{n % 10}"} for n in range(COUNT)])

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

    by_key = [[n for n in done if n % 10 == key] for key in range(10)]
    if by_key != [list(range(key, COUNT, 10)) for key in range(10)] or lag:
        raise SystemExit(f"an event is missing, repeated or out of order (lag {lag}): {by_key}")
    print(f"{len(workers)} threads processed {len(done)} events, in order per key.")


main()
