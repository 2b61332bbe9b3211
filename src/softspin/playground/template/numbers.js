// Numbers out of text, and random ones.

// Three bytes a number: a whole number, counted from 2^23, times the array's step.
function unpack({ step, data }) {
  const text = atob(data);
  const out = new Float32Array(text.length / 3);
  for (let i = 0, at = 0; i < out.length; i++, at += 3) {
    const whole = text.charCodeAt(at) | (text.charCodeAt(at + 1) << 8) | (text.charCodeAt(at + 2) << 16);
    out[i] = (whole - 0x800000) * step;
  }
  return out;
}

// Rows of bits, eight a byte, the first the highest; each row starts a byte.
function unpackBits(data, rows, columns) {
  const text = atob(data);
  const stride = Math.ceil(columns / 8);
  return Array.from({ length: rows }, (_, row) =>
    Uint8Array.from({ length: columns }, (_, i) => (text.charCodeAt(row * stride + (i >> 3)) >> (7 - (i & 7))) & 1));
}

// The model as the page carries it, with arrays in the place of text.
function unpackModel(payload) {
  const net = (layers) => layers.map((layer) => ({ ...layer, weight: unpack(layer.weight), bias: unpack(layer.bias) }));
  const { rbm, smoothing, check, height, width } = payload;
  const units = payload.groups * payload.bits;
  return {
    ...payload,
    units,
    pixels: height * width,
    images: unpackBits(payload.images, payload.count, height * width),
    encoder: payload.encoder.map(net),
    decoder: net(payload.decoder),
    rbm: { ...rbm, bias: unpack(rbm.bias), weight: unpack(rbm.weight) },
    smoothing: { ...smoothing, width: smoothing.width && unpack(smoothing.width) },
    check: {
      bits: unpackBits(check.bits, 1, units)[0],
      logits: unpack(check.logits),
      pixels: unpack(check.pixels),
      fields: unpack(check.fields),
      energy: check.energy,
    },
  };
}

// Uniforms in (0, 1) from a seed, by Marsaglia's xorshift of 128 bits: what Math.random gives cannot be repeated.
function uniforms(seed) {
  let [a, b, c, d] = [seed | 0, 0x6c078965, 0x3c6ef372, 0x1b873593];
  const next = () => {
    let t = d;
    [d, c, b] = [c, b, a];
    t ^= t << 11;
    t ^= t >>> 8;
    a = t ^ a ^ (a >>> 19);
    return ((a >>> 0) + 0.5) / 4294967296;
  };
  for (let i = 0; i < 20; i++) next(); // near seeds become unlike each other
  return next;
}
