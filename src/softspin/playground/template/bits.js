// The bits as squares that can be flipped and clamped, and details of one of them.

const cells = [];
let parts = []; // the bits that are flipped and clamped together
let hovered = null; // the bit under the mouse, which replaces the selected one
let pondering = 0; // the timer of the search for the bits with the largest effect,
let pondered = ""; // and the bits for which it was made

const looked = () => (hovered === null ? state.unit : hovered);

function startBits() {
  parts = partsOf(model);
  $("parts").append(...parts.map(partBox));
  $("flip").addEventListener("click", () => flip([state.unit]));
  $("hold").addEventListener("click", () => hold([state.unit], !state.held[state.unit]));
  $("likely").addEventListener("click", () => {
    encodeImage(mostLikely);
    tell("Each bit is set to its likelier value for your image.");
  });
  $("drawn").addEventListener("click", () => {
    encodeImage((logit) => (random() < sigmoid(logit) ? 1 : 0));
    tell("Each bit is drawn at random with the encoder's probability. Click again for another draw.");
  });
  ["picture", "small-picture", "effect"].forEach((id) => shapePicture($(id)));
}

// One part of the bits: a heading, two buttons, and a square for each bit.
function partBox({ id, title, units }) {
  const box = document.createElement("div");
  const head = element("div", "", "side-head");
  const button = (action, text, onClick) => {
    const one = Object.assign(element("button", text), { type: "button", id: `${action}-${id}` });
    one.addEventListener("click", onClick);
    return one;
  };
  head.append(
    element("h3", title),
    button("flip", "Flip all", () => flip(units)),
    button("hold", "Clamp all", () => hold(units, !units.every((unit) => state.held[unit]))),
  );
  const grid = Object.assign(element("div", "", "grid"), { id });
  grid.setAttribute("role", "group");
  grid.setAttribute("aria-label", `${title}, ${units.length} bits`);
  units.forEach((unit) => grid.append(cell(unit)));
  grid.firstChild.tabIndex = 0;
  roving(grid, (square) => look(Number(square.dataset.unit)));
  grid.addEventListener("pointerleave", () => { hovered = null; changed(); });
  box.append(head, grid);
  return box;
}

function cell(unit) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "bit", tabIndex: -1 });
  button.dataset.unit = unit;
  button.addEventListener("click", () => {
    state.unit = unit;
    const holds = document.querySelector("input[name=click]:checked").value === "hold";
    if (holds) hold([unit], !state.held[unit]);
    else flip([unit]);
  });
  button.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() === "h" && !event.ctrlKey && !event.metaKey) hold([unit], !state.held[unit]);
  });
  button.addEventListener("pointerenter", (event) => {
    if (event.pointerType !== "mouse") return;
    hovered = unit;
    changed();
  });
  cells[unit] = { button, seen: "" };
  return button;
}

// Only changes are written: 400 squares at ten frames per second are expensive.
function showCells() {
  cells.forEach((one, unit) => {
    const on = state.bits[unit] === 1;
    const held = state.held[unit] === 1;
    const chance = state.chance[unit].toFixed(2);
    const seen = `${on}${held}${chance}${state.chanceOf}${unit === state.unit}`;
    if (seen === one.seen) return;
    one.seen = seen;
    const { button } = one;
    button.setAttribute("aria-pressed", String(on));
    const words = `${nameOf(unit)} = ${on ? 1 : 0}, ${state.chanceOf} = ${chance}${held ? ", clamped" : ""}`;
    button.setAttribute("aria-label", words);
    button.classList.toggle("held", held);
    button.classList.toggle("looked", unit === state.unit);
    button.style.setProperty("--chance", chance);
  });
  parts.forEach(({ id, units }) => {
    $(`hold-${id}`).textContent = units.every((unit) => state.held[unit]) ? "Unclamp all" : "Clamp all";
  });
}

function showPictures() {
  const { height, width } = model;
  ["picture", "small-picture"].forEach((id) => paint($(id), state.pixels, height, width));
  const changedBits = state.bits.reduce((sum, bit, unit) => sum + (bit !== state.encoded[unit] ? 1 : 0), 0);
  const bits = changedBits === 1 ? "1 bit differs from the encoder's." : `${changedBits} bits differ from the encoder's.`;
  const words = changedBits ? bits : "From the bits of your image.";
  $("picture-words").textContent = words;
}

function showLooked() {
  const unit = looked();
  const [effect] = effects(model, state.bits, [unit]);
  // The picture is normalized; the text has the size of the effect.
  const most = effect.reduce((sofar, value) => Math.max(sofar, Math.abs(value)), 0.05);
  paint($("effect"), effect.map((value) => value / most), model.height, model.width, true);
  const group = model.groups > 1 ? ` (group ${Math.floor(unit / model.bits) + 1})` : "";
  const whose = state.chanceOf === "q" ? "encoder's q =" : "p given the other bits =";
  const name = document.createElement("strong");
  name.textContent = nameOf(unit);
  const words = `${group} is ${state.bits[unit]}${state.held[unit] ? " and clamped" : ""}; ${whose} `
    + `${state.chance[unit].toFixed(2)}. A flip changes pixel probabilities by ${inkOf(effect).toFixed(1)} in total.`;
  $("bit-words").replaceChildren(name, words);
  $("flip").textContent = `Flip ${nameOf(state.unit)}`;
  $("hold").textContent = `${state.held[state.unit] ? "Unclamp" : "Clamp"} ${nameOf(state.unit)}`;
}

// The effects of all bits of a large model take some tenths of a second: they are computed in slices, when idle.
function ponder() {
  const bits = state.bits.join("");
  if (bits === pondered && !chain.running) return;
  pondered = bits;
  clearTimeout(pondering);
  if (chain.running) return;
  const units = Array.from(state.bits.keys());
  const sizes = [];
  const slice = () => {
    const some = units.slice(sizes.length, sizes.length + 40);
    sizes.push(...effects(model, state.bits, some).map(inkOf));
    if (sizes.length < units.length) pondering = setTimeout(slice, 0);
    else offer(units.sort((a, b) => sizes[b] - sizes[a]).slice(0, 8), sizes);
  };
  pondering = setTimeout(slice, 400);
}

// Buttons that flip these bits. If one of the previous buttons had the focus, the new one at its position gets it.
function offer(units, sizes) {
  const box = $("most");
  const focused = Array.from(box.children).indexOf(document.activeElement);
  box.replaceChildren(...units.map((unit) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "chip", textContent: nameOf(unit) });
    button.title = `Flip ${nameOf(unit)}: changes pixel probabilities by ${sizes[unit].toFixed(1)} in total`;
    button.addEventListener("click", () => { state.unit = unit; flip([unit]); });
    return button;
  }));
  if (focused >= 0) box.children[focused].focus();
}

function inkOf(effect) {
  return effect.reduce((sum, value) => sum + Math.abs(value), 0);
}

views.push(showCells, showPictures, showLooked, ponder);
