// What the visitor is looking at. Everything acts on one set of bits: the encoder writes them, clicks flip them, the
// chain moves them. Views are told once a frame.

const $ = (id) => document.getElementById(id);
const model = unpackModel(JSON.parse($("model").textContent));
const random = uniforms((Date.now() ^ (Math.random() * 2 ** 31)) | 0);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const state = {
  image: new Uint8Array(model.pixels),
  bits: new Uint8Array(model.units),
  encoded: new Uint8Array(model.units), // the bits as the encoder gave them
  q: new Float64Array(model.units), // the encoder's probability of each bit to be on
  chance: new Float64Array(model.units), // the probability that the bits were drawn with,
  chanceOf: "q", // the encoder's, "q", or the chain's given the other side, "p"
  shift: new Float64Array(model.units),
  held: new Uint8Array(model.units),
  pixels: new Float64Array(model.pixels), // the picture from the bits
  unit: 0, // the bit that is looked at
  steps: 0, // of the chain since it left the encoder's bits
  temperature: 1,
};

const views = [];
let waiting = false;

// Tell the views at the next frame that something has changed.
function changed() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(show);
}

function show() {
  waiting = false;
  state.pixels = decode(model, state.bits);
  views.forEach((view) => view());
}

function encodeImage(choose) {
  const { logits, shift, bits } = encode(model, state.image, choose);
  const q = logits.map(sigmoid);
  Object.assign(state, { q, shift, bits, encoded: bits.slice(), chance: q, chanceOf: "q", steps: 0 });
  changed();
}

function setImage(image) {
  state.image = Uint8Array.from(image);
  encodeImage(mostLikely);
}

function flip(units) {
  units.forEach((unit) => { state.bits[unit] ^= 1; });
  changed();
}

function hold(units, on) {
  units.forEach((unit) => { state.held[unit] = on ? 1 : 0; });
  changed();
}

function look(unit) {
  state.unit = unit;
  changed();
}

// Steps of the chain from the present bits.
function dream(count) {
  const { temperature, held } = state;
  for (let i = 0; i < count; i++) state.chance = sweep(model.rbm, state.bits, { temperature, held, random });
  state.chanceOf = "p";
  state.steps += count;
  changed();
}

function scatter() {
  state.bits.forEach((_, unit) => { if (!state.held[unit]) state.bits[unit] = random() < 0.5 ? 1 : 0; });
  Object.assign(state, { chance: new Float64Array(model.units).fill(0.5), chanceOf: "p", steps: 0 });
  changed();
}

// Names: L0, L1, ... R0, R1, ...; the number counts within the side.
function nameOf(unit) {
  return unit < model.rbm.left ? `L${unit}` : `R${unit - model.rbm.left}`;
}

function unitsOf(side) {
  const all = Array.from({ length: model.units }, (_, unit) => unit);
  return side === "left" ? all.slice(0, model.rbm.left) : all.slice(model.rbm.left);
}
