// The restricted Boltzmann machine: p(z) = e^(-E(z)) / Z, E(z) = -a.z - l.W.r with z = (l, r), left side first.

// Log odds of each unit of one side, given the other side.
function sideFields({ left, right, bias, weight }, z, ofRight) {
  const out = Float64Array.from(ofRight ? bias.slice(left) : bias.slice(0, left));
  for (let i = 0; i < left; i++) {
    for (let j = 0, at = i * right; j < right; j++) {
      if (ofRight) out[j] += z[i] * weight[at + j];
      else out[i] += z[left + j] * weight[at + j];
    }
  }
  return out;
}

// Log odds of each unit, given all the others.
function fields(rbm, z) {
  return Float64Array.from([...sideFields(rbm, z, false), ...sideFields(rbm, z, true)]);
}

function energy(rbm, z) {
  let total = 0;
  for (let i = 0; i < rbm.left; i++) total -= z[i] * rbm.bias[i];
  sideFields(rbm, z, true).forEach((field, j) => { total -= z[rbm.left + j] * field; });
  return total;
}

// One Gibbs sweep, in place: the right side given the left, then the left given the right. Clamped bits do not change.
// At a temperature T it samples e^(-E/T). Returns the probabilities that it sampled from.
function sweep(rbm, z, { temperature = 1, held = [], random }) {
  const chance = new Float64Array(z.length);
  for (const ofRight of [true, false]) {
    const first = ofRight ? rbm.left : 0;
    sideFields(rbm, z, ofRight).forEach((field, k) => {
      const unit = first + k;
      chance[unit] = sigmoid(field / temperature);
      if (!held[unit]) z[unit] = random() < chance[unit] ? 1 : 0;
    });
  }
  return chance;
}

// The pairs with the largest couplings of either sign, the largest first.
function strongestPairs({ right, weight }, count) {
  const order = Array.from(weight.keys()).sort((a, b) => Math.abs(weight[b]) - Math.abs(weight[a]));
  return order.slice(0, count).map((at) => ({ left: Math.floor(at / right), right: at % right, coupling: weight[at] }));
}

// Units of each side by the sum of the absolute values of their couplings, the largest first.
function strongestFirst({ left, right, weight }) {
  const sums = [new Float64Array(left), new Float64Array(right)];
  weight.forEach((value, at) => {
    sums[0][Math.floor(at / right)] += Math.abs(value);
    sums[1][at % right] += Math.abs(value);
  });
  return sums.map((of) => Array.from(of.keys()).sort((a, b) => of[b] - of[a]));
}
