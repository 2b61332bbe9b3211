// The state of the page. Everything acts on one set of bits: the encoder writes them, clicks flip them, the chain
// samples them. Views are updated once per frame.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("model").textContent);
const images = unpackBits(data.images, data.count, data.height * data.width);
const random = uniforms((Date.now() ^ (Math.random() * 2 ** 31)) | 0);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let model = unpackReplica(data, images, 0); // the replica that is shown

const state = {
  image: new Uint8Array(model.pixels),
  bits: new Uint8Array(model.units),
  encoded: new Uint8Array(model.units), // the bits from the encoder
  q: new Float64Array(model.units), // the encoder's probability that each bit is 1
  chance: new Float64Array(model.units), // the probability with which each bit was sampled:
  chanceOf: "q", // "q" of the encoder, or "p" of the chain given its neighbours
  shift: new Float64Array(model.units),
  held: new Uint8Array(model.units),
  pixels: new Float64Array(model.pixels), // the image decoded from the bits
  unit: 0, // the selected bit
  steps: 0, // of the chain since its start
  temperature: 1,
  condition: 0, // the number of the selected condition, if the model has one
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

// State what the last click did. Written only if it changes: screen readers announce every write.
function tell(words) {
  if ($("said").textContent !== words) $("said").textContent = words;
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
  const [unit] = units;
  tell(units.length === 1 ? `Flipped ${nameOf(unit)} to ${state.bits[unit]}. The decoded image follows.`
    : `Flipped ${units.length} bits. The decoded image follows.`);
  changed();
}

function hold(units, on) {
  units.forEach((unit) => { state.held[unit] = on ? 1 : 0; });
  const which = units.length === 1 ? nameOf(units[0]) : `${units.length} bits`;
  tell(on ? `Clamped ${which}: sampling does not change ${units.length === 1 ? "it" : "them"}.`
    : `Unclamped ${which}: sampling changes ${units.length === 1 ? "it" : "them"} again.`);
  changed();
}

function look(unit) {
  state.unit = unit;
  changed();
}

// Steps of the chain from the current bits.
function dream(count) {
  const { temperature, held } = state;
  for (let i = 0; i < count; i++) state.chance = sweep(model.prior, state.bits, { temperature, held, random });
  state.chanceOf = "p";
  state.steps += count;
  changed();
}

// New bits for the chain to start from. Clamped bits stay.
function scatter() {
  state.bits.forEach((_, unit) => { if (!state.held[unit]) state.bits[unit] = random() < 0.5 ? 1 : 0; });
  Object.assign(state, { chance: new Float64Array(model.units).fill(0.5), chanceOf: "p", steps: 0 });
  changed();
}

function encodeAround() {
  const before = state.bits;
  encodeImage(mostLikely);
  state.held.forEach((held, unit) => { if (held) state.bits[unit] = before[unit]; });
}

// The bits in parts, to flip and clamp together: the two sides of an RBM, or the groups of the encoder on a graph.
function partsOf({ prior, groups, bits, units }) {
  if (prior.sides) {
    return ["left", "right"].map((id, k) => ({ id, title: k ? "Right side" : "Left side", units: prior.sides[k] }));
  }
  const all = Array.from({ length: units }, (_, unit) => unit);
  return Array.from({ length: groups }, (_, k) => (
    { id: `group-${k + 1}`, title: groups > 1 ? `Group ${k + 1}` : "All bits", units: all.slice(k * bits, (k + 1) * bits) }));
}

// Names: L0, L1, ... R0, R1, ... for two sides, with numbers that count within a side; otherwise z0, z1, ...
function nameOf(unit) {
  const { sides } = model.prior;
  if (!sides) return `z${unit}`;
  return unit < sides[0].length ? `L${unit}` : `R${unit - sides[0].length}`;
}
