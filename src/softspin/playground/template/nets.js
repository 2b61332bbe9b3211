// Encoder and decoder: affine layers with tanh between them. Batch norm and centring are folded into the weights.

function sigmoid(x) {
  return 1 / (1 + Math.exp(-x));
}

// x W + b, with W row-major (inputs, outputs); most inputs are bits, and zeros are skipped.
function affine(layer, x) {
  const { inputs, outputs, weight } = layer;
  const out = Float64Array.from(layer.bias);
  for (let i = 0; i < inputs; i++) {
    const value = x[i];
    if (value === 0) continue;
    for (let j = 0, at = i * outputs; j < outputs; j++) out[j] += value * weight[at + j];
  }
  return out;
}

// The remaining layers of a network, from the output of its first layer.
function finish(net, first) {
  return net.slice(1).reduce((hidden, layer) => affine(layer, hidden.map(Math.tanh)), first);
}

function runNet(net, x) {
  return finish(net, affine(net[0], x));
}

// Group after group: the network of a group gets the image and the bits of earlier groups. `choose(logit, unit)` returns
// each bit. The networks of the Gaussian integral have a second half of outputs, for the shift of each soft bit.
function encode(model, image, choose) {
  const logits = new Float64Array(model.units);
  const shift = new Float64Array(model.units);
  const bits = new Uint8Array(model.units);
  model.encoder.forEach((net, group) => {
    const first = group * model.bits;
    const input = new Float64Array(image.length + first);
    input.set(image);
    input.set(bits.subarray(0, first), image.length);
    const out = runNet(net, input);
    for (let i = 0; i < model.bits; i++) {
      logits[first + i] = out[i];
      if (out.length > model.bits) shift[first + i] = 0.5 * (sigmoid(out[model.bits + i]) - 0.5);
      bits[first + i] = choose(out[i], first + i);
    }
  });
  return { logits, shift, bits };
}

function mostLikely(logit) {
  return logit > 0 ? 1 : 0;
}

// The probability that each pixel is 1.
function decode(model, bits) {
  return runNet(model.decoder, bits).map(sigmoid);
}

// For each requested bit: pixel probabilities with the bit 1 minus those with the bit 0, all other bits fixed.
function effects(model, bits, asked) {
  const [layer] = model.decoder;
  const first = affine(layer, bits);
  const before = finish(model.decoder, first).map(sigmoid);
  return asked.map((unit) => {
    const sign = 1 - 2 * bits[unit];
    const moved = first.map((value, j) => value + sign * layer.weight[unit * layer.outputs + j]);
    const after = finish(model.decoder, moved).map(sigmoid);
    return after.map((value, pixel) => sign * (value - before[pixel]));
  });
}
