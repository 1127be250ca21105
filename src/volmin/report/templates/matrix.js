"use strict";
// Matrices of many classes: zoom, move, and read single entries with their names.
for (const figure of document.querySelectorAll(".matrix")) {
  const { names, entries } = JSON.parse(figure.querySelector("script").textContent);
  const canvas = figure.querySelector("canvas"), output = figure.querySelector("output");
  const context = canvas.getContext("2d");
  const C = names.length, FEWEST = Math.min(8, C), LEFT = 110, TOP = 90, RIGHT = 48, LONGEST = 16;
  const values = new Map(entries.map(([i, j, value]) => [i * C + j, value]));
  let span = C, row = 0, column = 0, chosen = null, size = 0;

  const cell = () => (size - LEFT - RIGHT) / span;  // on the right, slanted names need space
  const short = (name) => name.length > LONGEST ? name.slice(0, LONGEST - 1) + "…" : name;

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const scale = window.devicePixelRatio || 1;
    size = canvas.clientWidth;
    const height = size - LEFT - RIGHT + TOP + 6, side = cell();
    canvas.style.height = `${height}px`;
    canvas.width = size * scale;
    canvas.height = height * scale;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, size, height);
    for (const [i, j, value] of entries) {
      if (i < row || j < column || i >= row + span || j >= column + span) continue;
      // The square root makes small entries visible.
      context.fillStyle = `rgb(${colour("--blue")} / ${Math.sqrt(value).toFixed(3)})`;
      context.fillRect(LEFT + (j - column) * side, TOP + (i - row) * side, Math.max(side - .5, 1), Math.max(side - .5, 1));
    }
    context.fillStyle = colour("--ink");
    context.font = "11px system-ui, sans-serif";
    const every = Math.max(1, Math.ceil(12 / side));
    for (let k = 0; k < span; k += every) {
      const middle = (k + .5) * side;
      context.textAlign = "right";
      context.fillText(short(names[row + k]), LEFT - 5, TOP + middle + 4);
      context.save();
      context.translate(LEFT + middle + 4, TOP - 5);
      context.rotate(-Math.PI / 3);
      context.textAlign = "left";
      context.fillText(short(names[column + k]), 0, 0);
      context.restore();
    }
    if (!chosen) return;
    context.strokeStyle = colour("--ink");
    context.lineWidth = 1.5;
    context.strokeRect(LEFT + (chosen.j - column) * side, TOP + (chosen.i - row) * side, side, side);
  }

  function choose(i, j) {
    chosen = { i: Math.min(Math.max(i, 0), C - 1), j: Math.min(Math.max(j, 0), C - 1) };
    row = Math.min(Math.max(row, chosen.i - span + 1), chosen.i);
    column = Math.min(Math.max(column, chosen.j - span + 1), chosen.j);
    const value = values.get(chosen.i * C + chosen.j) || 0;
    output.textContent = `true class ${names[chosen.j]}, labelled ${names[chosen.i]}: ${value ? (100 * value).toFixed(1) : "under 0.1"}%`;
    draw();
  }

  function zoom(factor, at) {
    const middle = at || chosen || { i: row + span / 2, j: column + span / 2 };
    span = factor ? Math.min(C, Math.max(FEWEST, Math.round(span / factor))) : C;
    row = Math.min(Math.max(Math.round(middle.i - span / 2), 0), C - span);
    column = Math.min(Math.max(Math.round(middle.j - span / 2), 0), C - span);
    draw();
  }

  function place(event) {
    const box = canvas.getBoundingClientRect();
    return { i: row + Math.floor((event.clientY - box.top - TOP) / cell()), j: column + Math.floor((event.clientX - box.left - LEFT) / cell()) };
  }

  const inside = ({ i, j }) => i >= row && j >= column && i < row + span && j < column + span;
  let from = null;
  canvas.onpointerdown = (event) => { from = { row, column, x: event.clientX, y: event.clientY }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointerup = () => { from = null; };
  canvas.onpointermove = (event) => {
    if (from) {
      row = Math.min(Math.max(from.row - Math.round((event.clientY - from.y) / cell()), 0), C - span);
      column = Math.min(Math.max(from.column - Math.round((event.clientX - from.x) / cell()), 0), C - span);
      draw();
    } else if (inside(place(event))) choose(place(event).i, place(event).j);
  };
  canvas.ondblclick = (event) => zoom(2, place(event));
  canvas.onkeydown = (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const { i, j } = chosen || { i: row, j: column };
    if (steps) choose(i + steps[0], j + steps[1]);
    else if (event.key === "+") zoom(2);
    else if (event.key === "-") zoom(.5);
    else return;
    event.preventDefault();
  };
  for (const button of figure.querySelectorAll("button")) button.onclick = () => zoom(Number(button.dataset.zoom));
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}
