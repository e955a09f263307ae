// Time zone and theme of the browser, formatting of values in charts, and the copy button.
(() => {
  const readCookie = (name) =>
    document.cookie.split("; ").find((cookie) => cookie.startsWith(`${name}=`))?.slice(name.length + 1);
  const writeCookie = (name, value) => (document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=lax`);
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  writeCookie("penstock_zone", zone);
  if (document.currentScript.dataset.then === "reload") {
    // The server formats all times, so it needs the zone before the first page. Without cookies, it uses UTC.
    if (readCookie("penstock_zone") === zone) location.reload();
    else location.search += `${location.search ? "&" : "?"}zone=unknown`;
  }

  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => (["light", "dark"].includes(readCookie("penstock_theme")) ? readCookie("penstock_theme") : "system");
  const apply = () => {
    const dark = chosen() === "dark" || (chosen() === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.documentElement.dataset.chosen = chosen();
    globalThis.Quasar?.Dark.set(dark);
  };
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => setTimeout(apply));
  apply();

  const digits = (value, count = 3) => +value.toPrecision(count);
  const seconds = (value) => {
    if (!value) return value === 0 ? "0" : "–";
    if (value < 1) return `${Math.round(value * 1000)} ms`;
    return value < 120 ? `${digits(value)} s` : `${digits(value / 60)} min`;
  };
  const number = (value) => {
    if (value == null) return "–";
    if (value >= 1e6) return `${digits(value / 1e6)} M`;
    return value >= 1e4 ? `${digits(value / 1e3)} k` : digits(value, 4).toLocaleString("en-US");
  };

  globalThis.penstock = {
    number,
    seconds,
    clock: (time) => new Date(time).toTimeString().slice(0, 8),
    minute: (time) => new Date(time).toTimeString().slice(0, 5),
    day: (time) => `${new Date(time).getDate()} ${new Date(time).toLocaleString("en", { month: "short" })} ${penstock.minute(time)}`,
    // The ids of the ticked rows of a table in which a tick box has changed.
    tickedRows: ({ currentTarget, target }) => {
      const boxes = [...currentTarget.querySelectorAll("td [data-row]")];
      const all = currentTarget.querySelector("th [data-row]");
      if (target === all) for (const box of boxes) box.checked = all.checked;
      all.checked = boxes.every((box) => box.checked);
      return boxes.filter((box) => box.checked).map((box) => box.dataset.row);
    },
    milliseconds: (value) => seconds(value == null ? null : value / 1000),
    apply,
    nextTheme() {
      const order = system.matches ? ["system", "light", "dark"] : ["system", "dark", "light"];
      writeCookie("penstock_theme", order[(order.indexOf(chosen()) + 1) % 3]);
      apply();
    },
    async copy(text, button) {
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        // The clipboard API is not available over plain HTTP from another machine.
        const area = Object.assign(document.createElement("textarea"), { value: text });
        document.body.append(area);
        area.select();
        document.execCommand("copy");
        area.remove();
      }
      button?.classList.add("ps-copied");
      setTimeout(() => button?.classList.remove("ps-copied"), 1200);
    },
  };
})();
