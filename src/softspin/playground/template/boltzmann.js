// The Boltzmann machine: p(z) = e^(-E(z)) / Z, E(z) = -a.z - z.W.z / 2, with W symmetric and zero on the diagonal.
// The neighbours of unit i are other[start[i]] to other[start[i + 1] - 1]; `coupling` has their couplings to i.

// From a matrix of couplings between two sides (left, right, weight), or from `edges`, pairs of units, with a weight
// each. `blocks` are sets of uncoupled units, in the order of a sweep: of two sides, the right one comes first.
function boltzmann({ left, right, bias, weight, edges, blocks }) {
  const all = Array.from(bias.keys());
  const sides = left === undefined ? null : [all.slice(0, left), all.slice(left)];
  const pairs = edges || Uint16Array.from({ length: 2 * weight.length }, (_, k) => {
    const at = k >> 1;
    return k & 1 ? left + (at % right) : Math.floor(at / right);
  });
  const start = new Uint32Array(all.length + 1);
  pairs.forEach((unit) => { start[unit + 1] += 1; });
  for (let i = 0; i < all.length; i++) start[i + 1] += start[i];
  const [free, other, coupling] = [start.slice(), new Uint16Array(pairs.length), new Float32Array(pairs.length)];
  const connect = (unit, to, value) => {
    other[free[unit]] = to;
    coupling[free[unit]] = value;
    free[unit] += 1;
  };
  weight.forEach((value, k) => {
    connect(pairs[2 * k], pairs[2 * k + 1], value);
    connect(pairs[2 * k + 1], pairs[2 * k], value);
  });
  const count = blocks ? Math.max(...blocks) + 1 : 0;
  const order = sides ? [sides[1], sides[0]]
    : Array.from({ length: count }, (_, block) => all.filter((unit) => blocks[unit] === block));
  return { bias, weight, pairs, start, other, coupling, sides, blocks: order };
}

// Log odds of one unit, given all the others.
function fieldOf({ bias, start, other, coupling }, z, unit) {
  let field = bias[unit];
  for (let at = start[unit]; at < start[unit + 1]; at++) field += z[other[at]] * coupling[at];
  return field;
}

// Log odds of each unit, given all the others.
function fields(machine, z) {
  return Float64Array.from(machine.bias, (_, unit) => fieldOf(machine, z, unit));
}

function energy(machine, z) {
  const { bias } = machine;
  return -z.reduce((sum, bit, unit) => (bit ? sum + (bias[unit] + fieldOf(machine, z, unit)) / 2 : sum), 0);
}

// One Gibbs sweep, in place: each block given all other bits. Clamped bits do not change.
// At a temperature T it samples e^(-E/T). Returns the probabilities that it sampled from.
function sweep(machine, z, { temperature = 1, held = [], random }) {
  const chance = new Float64Array(z.length);
  machine.blocks.forEach((block) => block.forEach((unit) => {
    chance[unit] = sigmoid(fieldOf(machine, z, unit) / temperature);
    if (!held[unit]) z[unit] = random() < chance[unit] ? 1 : 0;
  }));
  return chance;
}

// The coupling of two units; undefined if there is none.
function couplingOf({ start, other, coupling }, i, j) {
  for (let at = start[i]; at < start[i + 1]; at++) if (other[at] === j) return coupling[at];
  return undefined;
}

// The pairs with the largest couplings of either sign, the largest first.
function strongestPairs({ pairs, weight }, count) {
  const order = Array.from(weight.keys()).sort((a, b) => Math.abs(weight[b]) - Math.abs(weight[a]));
  return order.slice(0, count).map((at) => ({ i: pairs[2 * at], j: pairs[2 * at + 1], coupling: weight[at] }));
}

// Units by the sum of the absolute values of their couplings, the largest first.
function strongestFirst({ start, coupling }, units) {
  const strength = (unit) => coupling.subarray(start[unit], start[unit + 1]).reduce((sum, one) => sum + Math.abs(one), 0);
  const known = new Map(units.map((unit) => [unit, strength(unit)]));
  return units.slice().sort((a, b) => known.get(b) - known.get(a));
}
