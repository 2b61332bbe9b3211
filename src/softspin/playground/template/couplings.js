// The couplings as a heat map, one square for each pair, and the strongest pairs by name.

const heat = { row: 0, column: 0, rows: [], columns: [], most: 1, image: null };

function startCouplings() {
  $("order").addEventListener("change", () => {
    const pair = [heat.rows[heat.row], heat.columns[heat.column]];
    setOrder();
    frame(...pair);
  });
  $("heat").addEventListener("pointerdown", pointAtPair);
  $("heat").addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") pointAtPair(event); });
  $("heat").addEventListener("keydown", keyOnHeat);
  const steps = Array.from({ length: 201 }, (_, i) => shade(i / 100 - 1));
  views.push(() => paint($("scale"), steps, 1, steps.length, true));
}

// For each replica.
function fillCouplings() {
  const { prior } = model;
  heat.most = prior.weight.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  $("scale-low").textContent = `−${heat.most.toFixed(2)}`;
  $("scale-high").textContent = `+${heat.most.toFixed(2)}`;
  setOrder();
  const strongest = strongestPairs(prior, 8);
  if (strongest.length) frame(strongest[0].i, strongest[0].j);
  $("heat").style.aspectRatio = `${heat.columns.length} / ${heat.rows.length}`;
  $("pairs").replaceChildren(...strongest.map(({ i, j, coupling }) => {
    const item = document.createElement("li");
    const together = coupling > 0 ? "together" : "apart";
    const button = element("button", `${nameOf(i)} – ${nameOf(j)} ${signed(coupling)} ${together}`, "pair");
    button.type = "button";
    button.addEventListener("click", () => {
      frame(i, j);
      tell(`The frame on the map marks ${nameOf(i)} and ${nameOf(j)}.`);
    });
    item.append(button);
    return item;
  }));
}

// Mark a pair of units on the map.
function frame(i, j) {
  Object.assign(heat, { row: heat.rows.indexOf(i), column: heat.columns.indexOf(j) });
  changed();
}

function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

// Most couplings are small compared to the largest, so colours are on a square-root scale; the legend shows it.
function shade(value) {
  return Math.sign(value) * Math.sqrt(Math.abs(value));
}

// Left bits down and right bits across, or on a graph all bits down and across.
function setOrder() {
  const { prior } = model;
  const all = Array.from({ length: model.units }, (_, unit) => unit);
  const axes = prior.sides || [all, all];
  [heat.rows, heat.columns] = $("order").value === "strongest" ? axes.map((units) => strongestFirst(prior, units)) : axes;
  heat.image = null;
}

function pointAtPair(event) {
  const box = $("heat").getBoundingClientRect();
  const place = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
  heat.row = place((event.clientY - box.top) / box.height, heat.rows.length);
  heat.column = place((event.clientX - box.left) / box.width, heat.columns.length);
  changed();
}

function keyOnHeat(event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  heat.row = Math.max(0, Math.min(heat.rows.length - 1, heat.row + move[0]));
  heat.column = Math.max(0, Math.min(heat.columns.length - 1, heat.column + move[1]));
  changed();
}

// The map with one pixel for each pair; painted again if the order, the replica or the colours change.
function heatImage() {
  const paper = css("paper");
  if (heat.image?.paper !== paper) {
    const { pairs, weight } = model.prior;
    const { rows, columns, most } = heat;
    const [rowOf, columnOf] = [rows, columns].map((units) => new Map(units.map((unit, at) => [unit, at])));
    const values = new Float32Array(rows.length * columns.length);
    weight.forEach((value, k) => {
      const [i, j] = [pairs[2 * k], pairs[2 * k + 1]];
      [[i, j], [j, i]].forEach(([row, column]) => {
        if (!rowOf.has(row) || !columnOf.has(column)) return; // of two sides, each pair is there once
        values[rowOf.get(row) * columns.length + columnOf.get(column)] = shade(value / most);
      });
    });
    const small = document.createElement("canvas");
    paint(small, values, rows.length, columns.length, true);
    heat.image = { paper, small };
  }
  return heat.image.small;
}

function showHeat() {
  const canvas = $("heat");
  if (!canvas.offsetParent) return; // on another tab
  const [height, width] = [heat.rows.length, heat.columns.length];
  const scale = Math.max(1, Math.floor(600 / Math.max(height, width))); // so that a frame around one square is visible
  Object.assign(canvas, { width: width * scale, height: height * scale });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(heatImage(), 0, 0, canvas.width, canvas.height);
  context.strokeStyle = css("ink");
  context.lineWidth = 2;
  const at = (index, size) => Math.max(1, Math.min(size * scale - scale - 5, index * scale - 2)); // the frame stays inside
  context.strokeRect(at(heat.column, width), at(heat.row, height), scale + 4, scale + 4);
  const words = pairWords(heat.rows[heat.row], heat.columns[heat.column]);
  if ($("heat-words").textContent !== words) $("heat-words").textContent = words; // screen readers announce every write
}

function pairWords(i, j) {
  const value = couplingOf(model.prior, i, j);
  if (i === j) return `${nameOf(i)} twice: a bit has no coupling with itself.`;
  if (value === undefined) return `${nameOf(i)} and ${nameOf(j)}: no coupling in this graph.`;
  return `${nameOf(i)} and ${nameOf(j)}: coupling ${signed(value)}. With all other bits fixed, setting one to 1 `
    + `multiplies the odds of the other by e^${signed(value)} = ${Math.exp(value).toPrecision(3)}.`;
}

views.push(showHeat);
