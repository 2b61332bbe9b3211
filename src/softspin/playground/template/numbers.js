// Decoding of packed numbers, and random numbers.

// Little-endian float32, the native order of all platforms with a browser.
function unpack(data) {
  return new Float32Array(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)).buffer);
}

// Rows of bits, eight per byte, most significant bit first; each row starts a new byte.
function unpackBits(data, rows, columns) {
  const text = atob(data);
  const stride = Math.ceil(columns / 8);
  return Array.from({ length: rows }, (_, row) =>
    Uint8Array.from({ length: columns }, (_, i) => (text.charCodeAt(row * stride + (i >> 3)) >> (7 - (i & 7))) & 1));
}

// The payload of the page, with arrays instead of text.
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

// Uniforms in (0, 1) from a seed, by Marsaglia's 128-bit xorshift; Math.random cannot be seeded.
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
  for (let i = 0; i < 20; i++) next(); // decorrelates similar seeds
  return next;
}
