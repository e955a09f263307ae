from __future__ import annotations

from tests.python_process import run_python


def test_commands_end_although_the_process_forks_while_they_start() -> None:
    output = run_python(
        """
        import os, threading
        from penstock.db.embedded.subprocess import run

        def run_many():
            for _ in range(60):
                run(["true"])

        runner = threading.Thread(target=run_many, daemon=True)
        runner.start()
        children_stay, children_go = os.pipe()
        for _ in range(30):
            if os.fork() == 0:
                os.close(children_go)
                os.read(children_stay, 1)
                os._exit(0)
            runner.join(0.002)
        runner.join(30)
        print("hangs" if runner.is_alive() else "ended")
        """
    )
    assert output == "ended\n"
