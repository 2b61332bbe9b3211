// The couplings as a heat map, one square for each pair, and the strongest pairs by name.

const heat = { row: 0, column: 0, rows: [], columns: [], most: 1, image: null };

function startCouplings() {
  const { rbm } = model;
  heat.most = rbm.weight.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  $("scale-low").textContent = `−${heat.most.toFixed(2)}`;
  $("scale-high").textContent = `+${heat.most.toFixed(2)}`;
  const steps = Array.from({ length: 201 }, (_, i) => shade(i / 100 - 1));
  views.push(() => paint($("scale"), steps, 1, steps.length, true));
  setOrder("strongest");
  $("order").addEventListener("change", (event) => { setOrder(event.target.value); changed(); });
  $("heat").style.aspectRatio = `${rbm.right} / ${rbm.left}`;
  $("heat").addEventListener("pointerdown", pointAtPair);
  $("heat").addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") pointAtPair(event); });
  $("heat").addEventListener("keydown", keyOnHeat);
  const pairs = strongestPairs(rbm, 8);
  $("pairs").append(...pairs.map(({ left, right, coupling }) => {
    const item = document.createElement("li");
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "pair" });
    const together = coupling > 0 ? "together" : "apart";
    button.textContent = `L${left} – R${right} ${signed(coupling)} ${together}`;
    button.addEventListener("click", () => {
      heat.row = heat.rows.indexOf(left);
      heat.column = heat.columns.indexOf(right);
      changed();
    });
    item.append(button);
    return item;
  }));
}

function signed(value) {
  return `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
}

// Most couplings are small compared to the largest, so colours are on a square-root scale; the legend shows it.
function shade(value) {
  return Math.sign(value) * Math.sqrt(Math.abs(value));
}

function setOrder(order) {
  const { left, right } = model.rbm;
  const plain = [left, right].map((size) => Array.from({ length: size }, (_, i) => i));
  [heat.rows, heat.columns] = order === "strongest" ? strongestFirst(model.rbm) : plain;
}

function pointAtPair(event) {
  const box = $("heat").getBoundingClientRect();
  const place = (share, size) => Math.max(0, Math.min(size - 1, Math.floor(share * size)));
  heat.row = place((event.clientY - box.top) / box.height, model.rbm.left);
  heat.column = place((event.clientX - box.left) / box.width, model.rbm.right);
  changed();
}

function keyOnHeat(event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const move = moves[event.key];
  if (!move) return;
  event.preventDefault();
  heat.row = Math.max(0, Math.min(model.rbm.left - 1, heat.row + move[0]));
  heat.column = Math.max(0, Math.min(model.rbm.right - 1, heat.column + move[1]));
  changed();
}

function showHeat() {
  const { left, right, weight } = model.rbm;
  const { rows, columns, most } = heat;
  const canvas = $("heat");
  const scale = Math.max(1, Math.floor(600 / Math.max(left, right))); // so that a frame around one square is visible
  const key = `${$("order").value} ${css("paper")}`; // repainted if these change
  if (heat.image?.key !== key) {
    const values = new Float32Array(left * right);
    rows.forEach((i, row) => columns.forEach((j, column) => {
      values[row * right + column] = shade(weight[i * right + j] / most);
    }));
    const small = document.createElement("canvas");
    paint(small, values, left, right, true);
    heat.image = { key, small };
  }
  Object.assign(canvas, { width: right * scale, height: left * scale });
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = false;
  context.drawImage(heat.image.small, 0, 0, canvas.width, canvas.height);
  context.strokeStyle = css("ink");
  context.lineWidth = 2;
  const at = (index, size) => Math.max(1, Math.min(size * scale - scale - 5, index * scale - 2)); // the frame stays inside
  context.strokeRect(at(heat.column, right), at(heat.row, left), scale + 4, scale + 4);
  const [i, j] = [rows[heat.row], columns[heat.column]];
  const value = weight[i * right + j];
  const words = `L${i} and R${j}: coupling ${signed(value)}. With all other bits fixed, setting one to 1 `
    + `multiplies the odds of the other by e^${signed(value)} = ${Math.exp(value).toPrecision(3)}.`;
  if ($("heat-words").textContent !== words) $("heat-words").textContent = words; // screen readers announce every write
}

views.push(showHeat);
