"use strict";

// Tables: a header's button sorts by its column, upwards, then downwards; what has no number comes last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  for (const button of table.querySelectorAll("thead button")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const way = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of header.parentElement.querySelectorAll("[aria-sort]")) other.setAttribute("aria-sort", "none");
      header.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      const keyed = Array.from(body.rows, (row) => [row, row.cells[header.cellIndex].dataset.value]);
      keyed.sort(([, first], [, second]) => {
        if (first === undefined || second === undefined) return (first === undefined) - (second === undefined);
        return way * (Number(first) - Number(second));
      });
      body.append(...keyed.map(([row]) => row));
    });
  }
}

// Curves: the slider, or the pointer over the chart, chooses a radius; the key says what each curve is there.
for (const figure of document.querySelectorAll("figure.accuracy")) {
  const { top, curves } = JSON.parse(figure.querySelector("script").textContent);
  const chart = figure.querySelector("svg");
  const guide = chart.querySelector(".guide");
  const slider = figure.querySelector("input");
  const shown = figure.querySelector(".radius");
  const outputs = figure.querySelectorAll(".keys output");
  const left = Number(chart.dataset.left);
  const width = Number(chart.dataset.right) - left;

  const kept = (curve, radius) =>
    curve.always + curve.radii.filter((end) => (curve.open ? end > radius : end >= radius)).length;

  const read = () => {
    const share = Number(slider.value) / Number(slider.max);
    const radius = Number((share * top).toPrecision(4)); // what is shown is what is asked
    const words = curves.map((curve, place) => {
      const count = kept(curve, radius);
      const percent = curve.asked ? Math.floor((1000 * count) / curve.asked) / 10 : 0;
      outputs[place].textContent = `${percent.toFixed(1)} % (${count} of ${curve.asked})`;
      return `${curve.name} ${percent.toFixed(1)} %`;
    });
    shown.textContent = String(radius);
    slider.setAttribute("aria-valuetext", `radius ${shown.textContent}: ${words.join(", ")}`);
    for (const end of ["x1", "x2"]) guide.setAttribute(end, left + share * width);
  };

  const follow = (event) => {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
    slider.value = Math.round(Number(slider.max) * Math.min(1, Math.max(0, (place.x - left) / width)));
    read();
  };

  slider.addEventListener("input", read);
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  read();
}
