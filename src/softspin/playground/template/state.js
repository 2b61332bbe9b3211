// The state of the page. Everything acts on one set of bits: the encoder writes them, clicks flip them, the chain
// samples them. Views are updated once per frame.

const $ = (id) => document.getElementById(id);
const model = unpackModel(JSON.parse($("model").textContent));
const random = uniforms((Date.now() ^ (Math.random() * 2 ** 31)) | 0);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const state = {
  image: new Uint8Array(model.pixels),
  bits: new Uint8Array(model.units),
  encoded: new Uint8Array(model.units), // the bits from the encoder
  q: new Float64Array(model.units), // the encoder's probability that each bit is 1
  chance: new Float64Array(model.units), // the probability with which each bit was sampled:
  chanceOf: "q", // "q" of the encoder, or "p" of the chain given the other side
  shift: new Float64Array(model.units),
  held: new Uint8Array(model.units),
  pixels: new Float64Array(model.pixels), // the image decoded from the bits
  unit: 0, // the selected bit
  steps: 0, // of the chain since the bits of the encoder
  temperature: 1,
};

const views = [];
let waiting = false;

// Update the views at the next frame.
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

// Steps of the chain from the current bits.
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

// Names: L0, L1, ... R0, R1, ...; numbers count within a side.
function nameOf(unit) {
  return unit < model.rbm.left ? `L${unit}` : `R${unit - model.rbm.left}`;
}

function unitsOf(side) {
  const all = Array.from({ length: model.units }, (_, unit) => unit);
  return side === "left" ? all.slice(0, model.rbm.left) : all.slice(model.rbm.left);
}
