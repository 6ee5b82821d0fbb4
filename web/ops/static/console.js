// What the pages can do without, and are better with: charts drawn from their tables, copying, forms that ask once.
"use strict";

(() => {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const numbers = (table, column) =>
    [...table.tBodies[0].rows].map((row) => {
      const cell = row.cells[column];
      return Number(cell.dataset.value ?? cell.textContent);
    });

  const axes = (extra) => {
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { stroke: color("--line"), width: 1 } };
    return [{ ...axis, ...extra.x }, { ...axis, size: 48, ...extra.y }];
  };

  const lines = (table, width) => ({
    options: {
      width, height: 220, legend: { show: true, live: true }, cursor: { y: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 4) * 1.05] } },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      series: [
        { label: "UTC", value: "{HH}:{mm}" },
        ...[...table.tHead.rows[0].cells].slice(1).map((head, index) => ({
          label: head.textContent, stroke: color(index ? "--good" : "--chart"), width: 2, points: { show: false },
          fill: index ? undefined : color("--chart-fill"),
        })),
      ],
      axes: axes({ x: { values: "{HH}:{mm}" }, y: {} }),
    },
    data: [...table.tHead.rows[0].cells].map((_, column) => numbers(table, column)),
  });

  const bars = (table, width) => {
    const labels = [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.replace("≤ ", ""));
    const split = Number(table.dataset.split);
    const counts = numbers(table, 1);
    const at = counts.map((_, index) => index);
    const bar = (label, name, values) => ({ label, stroke: color(name), fill: color(name), paths: uPlot.paths.bars({ size: [0.7, 60] }), points: { show: false }, value: (_, value) => value ?? "—" });
    return {
      options: {
        width, height: 220, legend: { show: true, live: false }, cursor: { show: false },
        scales: { x: { time: false, range: [-0.6, counts.length - 0.4] }, y: { range: (_, low, high) => [0, Math.max(high, 4) * 1.05] } },
        series: [{}, bar(`within ${table.dataset.objective}`, "--chart"), bar("later", "--chart-over")],
        axes: axes({ x: { splits: () => at, values: () => labels, grid: { show: false }, rotate: width < 480 ? -50 : 0, size: width < 480 ? 52 : 36 }, y: {} }),
      },
      data: [at, counts.map((count, index) => (index < split ? count : null)), counts.map((count, index) => (index < split ? null : count))],
    };
  };

  const drawn = new Map();
  const draw = (chart) => {
    const table = chart.querySelector(".scroll table");
    if (!table || !window.uPlot || !table.tBodies[0].rows.length) return;
    drawn.get(chart)?.destroy();
    let plot = chart.querySelector(".plot");
    if (!plot) {
      plot = document.createElement("div");
      plot.className = "plot";
      plot.setAttribute("aria-hidden", "true"); // the table below says the same
      const details = document.createElement("details");
      const summary = document.createElement("summary");
      summary.textContent = "As a table";
      const scroll = chart.querySelector(".scroll");
      scroll.before(plot, details);
      details.append(summary, scroll);
    }
    const made = (chart.dataset.chart === "bars" ? bars : lines)(table, plot.clientWidth - 12);
    drawn.set(chart, new uPlot(made.options, made.data, plot));
  };
  const drawAll = (root) => root.querySelectorAll("[data-chart]").forEach(draw);

  const copyable = (root) =>
    root.querySelectorAll("[data-copy]").forEach((text) => {
      if (!navigator.clipboard || text.nextElementSibling?.classList.contains("copy")) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      });
      text.after(button);
    });

  const selection = (root) =>
    root.querySelectorAll("[data-all]").forEach((all) => {
      const boxes = [...all.closest("form").querySelectorAll("input[type=checkbox][name=id]")];
      all.hidden = false;
      all.addEventListener("change", () => boxes.forEach((box) => { box.checked = all.checked; }));
    });

  const begin = (root) => { drawAll(root); copyable(root); selection(root); };

  document.addEventListener("DOMContentLoaded", () => begin(document));
  document.addEventListener("htmx:afterSettle", (event) => {
    for (const chart of drawn.keys()) if (!chart.isConnected) { drawn.get(chart).destroy(); drawn.delete(chart); }
    begin(event.target);
  });
  // Old figures must not pass for new ones.
  const stale = (is) => () => { const told = document.getElementById("stale"); if (told) told.hidden = !is; };
  for (const name of ["sendError", "responseError", "timeout"]) document.addEventListener(`htmx:${name}`, stale(true));
  document.addEventListener("htmx:afterSwap", stale(false));
  // A form is sent once: a second press while the first is under way does nothing.
  document.addEventListener("submit", (event) => {
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  window.addEventListener("pageshow", () => document.querySelectorAll("form").forEach((form) => delete form.dataset.sent));
  const redraw = () => drawAll(document);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let pending;
  window.addEventListener("resize", () => { cancelAnimationFrame(pending); pending = requestAnimationFrame(redraw); });
})();
