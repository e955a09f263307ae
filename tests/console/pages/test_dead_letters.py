"""Pages of dead letters: redrive, edit and purge."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from penstock.log.log import Log
from penstock.log.write.encode.batch import Batch
from tests.console.browser import (
    DESKTOP,
    VARIANTS,
    Variant,
    check_all_variants,
    check_pages,
    check_table_fits_a_phone,
    tile_number,
    type_over,
)
from tests.console.conftest import run_with_log
from tests.console.console_process import ConsoleProcess
from tests.console.queue_actions import create_dead_letters, event_numbers, pop


def test_redrive_delivers_dead_letter_again(page: Page, console: ConsoleProcess, queue: str) -> None:
    (id,) = create_dead_letters(console, queue, ["KeyError: 'total'"])
    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="KeyError: 'total'").click()
    page.get_by_role("link", name=f"#{id}").click()
    expect(page.get_by_label("Traceback")).to_contain_text("KeyError")
    page.get_by_role("button", name="Redrive").click()
    dialog = page.get_by_role("dialog", name=f"Redrive dead letter #{id} unchanged?")
    expect(dialog).to_contain_text("It will fail again unless you have fixed the cause")
    dialog.get_by_role("button", name="Redrive unchanged").click()

    expect(page.get_by_role("status").filter(has_text="1 dead letter redriven")).to_be_visible()
    page.get_by_role("link", name="Show the group").click()
    expect(page.get_by_role("heading", name="Group billing")).to_be_visible()
    (event,) = pop(console, queue)
    assert event.is_redriven


def test_dead_letter_is_edited_before_redrive(page: Page, console: ConsoleProcess, queue: str) -> None:
    (id,) = create_dead_letters(console, queue, ["no"])
    page.goto(f"/dead-letters?id={id}")
    type_over(page, "Data of the event", '{"n": }')
    page.get_by_role("button", name="Redrive").click()
    expect(page.get_by_text("JSON is malformed")).to_be_visible()
    type_over(page, "Data of the event", '{"n": 42}')
    page.get_by_role("button", name="Redrive").click()

    expect(page.get_by_role("status").filter(has_text="1 dead letter redriven")).to_be_visible()
    assert event_numbers(pop(console, queue)) == [42]


def test_dead_letters_of_one_kind_are_redriven_or_purged(page: Page, console: ConsoleProcess, queue: str) -> None:
    create_dead_letters(
        console, queue, ["order 10001 is too old", "order 10002 is too old", "HTTP 404", "HTTP 404", "HTTP 404"]
    )
    page.goto(f"/dead-letters?queue={queue}")
    expect(tile_number(page, "Dead letters")).to_have_text("5")
    page.get_by_role("link", name="order # is too old").click()
    page.get_by_role("button", name="Redrive all").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive all").click()
    expect(page.get_by_role("status").filter(has_text="2 dead letters redriven")).to_be_visible()
    expect(tile_number(page, "Dead letters")).to_have_text("3")
    page.get_by_role("link", name="HTTP 404").click()
    page.get_by_role("button", name="Purge all").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.get_by_role("button", name="Purge all").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge all").click()
    page.wait_for_url("**/dead-letters")
    page.goto(f"/dead-letters?queue={queue}")

    expect(page.get_by_role("heading", name="No dead letters")).to_be_visible()
    assert len(pop(console, queue)) == 2


def test_dead_letters_are_edited_in_bulk(page: Page, console: ConsoleProcess, queue: str) -> None:
    create_dead_letters(console, queue, ["n is odd"] * 4)
    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="n is odd").click()
    page.get_by_role("button", name="Edit and redrive").click()
    dialog = page.get_by_role("dialog", name="Edit and redrive 4 dead letters")
    send = dialog.get_by_role("button", name="Redrive 4")
    expect(send).to_be_disabled()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("4 stay as they are, and will probably fail again")).to_be_visible()
    type_over(page, "Mapping, SQL", "* EXCEPT (")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert").filter(has_text="Line 1")).to_be_visible()
    expect(send).to_be_disabled()
    # A space at the end closes the suggestions of the editor.
    type_over(page, "Mapping, SQL", "n + 100 AS n ")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("Of 4: 4 change.")).to_be_visible()
    check_all_variants(page, ".q-dialog", (DESKTOP, VARIANTS[-1]))
    type_over(page, "Mapping, SQL", "n + 200 AS n ")
    send.click()
    expect(dialog.get_by_role("alert").filter(has_text="preview it again")).to_be_visible()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("Of 4: 4 change.")).to_be_visible()
    send.click()

    expect(page.get_by_role("status").filter(has_text="4 dead letters redriven")).to_be_visible()
    assert all(number >= 200 for number in event_numbers(pop(console, queue)))


def test_selected_dead_letters_are_edited(page: Page, console: ConsoleProcess, queue: str) -> None:
    create_dead_letters(console, queue, ["n is odd"] * 4)
    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="n is odd").click()
    rows = page.get_by_role("table", name="Dead letters").get_by_role("row")
    number = rows.nth(2).get_by_role("link").inner_text()
    everything = page.get_by_role("checkbox", name="Select all")
    everything.check()
    expect(page.get_by_role("button", name="Redrive 4", exact=True)).to_be_visible()
    everything.uncheck()
    expect(page.get_by_role("button", name="Purge all")).to_be_visible()
    for row in (1, 2):
        rows.nth(row).get_by_role("checkbox").check()
    rows.nth(1).get_by_role("checkbox").uncheck()
    expect(everything).not_to_be_checked()
    page.get_by_role("button", name="Edit and redrive 1", exact=True).click()
    dialog = page.get_by_role("dialog", name="Edit and redrive 1 dead letter")
    type_over(page, "Mapping, SQL", "n + 100 AS n ")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_text("Of 1: 1 change.")).to_be_visible()
    expect(dialog.get_by_text(number)).to_be_visible()
    dialog.get_by_role("button", name="Redrive 1").click()

    expect(page.get_by_role("status").filter(has_text="1 dead letter redriven")).to_be_visible()
    (event,) = pop(console, queue)
    assert event.data["n"] >= 100

    page.goto(f"/dead-letters?queue={queue}")
    page.get_by_role("link", name="n is odd").click()
    page.get_by_role("row").nth(1).get_by_role("checkbox").check()
    page.get_by_role("button", name="Purge 1", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Purge 1").click()
    page.wait_for_url("**/dead-letters")
    page.goto(f"/dead-letters?queue={queue}")
    expect(tile_number(page, "Dead letters")).to_have_text("2")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_pages_are_accessible_and_fit_the_window(
    page: Page, console: ConsoleProcess, queue: str, variant: Variant
) -> None:
    (id,) = create_dead_letters(console, queue, ["KeyError: 'total'"])
    lists = ["/dead-letters"] if variant in (DESKTOP, VARIANTS[-1]) else []
    check_pages(page, variant, [f"/dead-letters?id={id}", *lists])


def test_tables_fit_a_phone(page: Page, console: ConsoleProcess, queue: str) -> None:
    async def push(log: Log) -> None:
        await log.push([Batch(queue, [{"data": {"n": 10}, "key": "warehouse-europe-north/international-shipments"}])])

    run_with_log(console.database_url, push)
    create_dead_letters(console, queue, ["KeyError: 'total'"] * 11)
    page.goto(f"/dead-letters?queue={queue}")
    check_table_fits_a_phone(page, "Dead letters by kind of error")
    page.get_by_role("link", name="KeyError: 'total'").click()
    check_table_fits_a_phone(page, "Dead letters")
    check_all_variants(page, variants=(DESKTOP, VARIANTS[-1]))
