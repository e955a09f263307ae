// What the server cannot know of its reader: the zone of his clock, and whether he likes it light or dark.
(() => {
  const read = (name) => document.cookie.split("; ").find((each) => each.startsWith(`${name}=`))?.slice(name.length + 1);
  const keep = (name, value) => (document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=lax`);
  const zone = encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC");
  if (read("penstock_zone") !== zone) {
    keep("penstock_zone", zone);
    // Times are written on the server: once more, now that it knows. Where cookies are refused, it stays UTC.
    if (read("penstock_zone") === zone && location.pathname !== "/sign-in") location.reload();
  }

  const system = matchMedia("(prefers-color-scheme: dark)");
  const chosen = () => (["light", "dark"].includes(read("penstock_theme")) ? read("penstock_theme") : "system");
  const apply = () => {
    const dark = chosen() === "dark" || (chosen() === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.documentElement.dataset.chosen = chosen();
    globalThis.Quasar?.Dark.set(dark);
  };
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => setTimeout(apply));
  apply();

  globalThis.penstock = {
    apply,
    nextTheme() {
      const order = system.matches ? ["system", "light", "dark"] : ["system", "dark", "light"];
      keep("penstock_theme", order[(order.indexOf(chosen()) + 1) % 3]);
      apply();
      return chosen();
    },
    chosen,
    async copy(text, button) {
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        // Not over plain HTTP from another machine: the old way still works there.
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
