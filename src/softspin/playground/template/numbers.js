// Decoding of packed numbers, numbers as text, and random numbers.

// Little-endian float32, the native order of all platforms with a browser.
function unpack(data) {
  return new Float32Array(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)).buffer);
}

// Little-endian unsigned 16-bit integers: numbers of units.
function unpackUnits(data) {
  return new Uint16Array(Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0)).buffer);
}

// Rows of bits, eight per byte, most significant bit first; each row starts a new byte.
function unpackBits(data, rows, columns) {
  const text = atob(data);
  const stride = Math.ceil(columns / 8);
  return Array.from({ length: rows }, (_, row) =>
    Uint8Array.from({ length: columns }, (_, i) => (text.charCodeAt(row * stride + (i >> 3)) >> (7 - (i & 7))) & 1));
}

// One replica of the data of the page, with arrays instead of text.
function unpackReplica(data, images, index) {
  const one = data.replicas[index];
  const net = (layers) => layers.map((layer) => ({ ...layer, weight: unpack(layer.weight), bias: unpack(layer.bias) }));
  const { prior, smoothing, check } = one;
  const units = data.groups * data.bits;
  return {
    ...data,
    ...one,
    index,
    units,
    pixels: data.height * data.width,
    images,
    encoder: one.encoder.map(net),
    decoder: net(one.decoder),
    prior: boltzmann({
      ...prior,
      bias: unpack(prior.bias),
      weight: unpack(prior.weight),
      edges: prior.edges && unpackUnits(prior.edges),
      blocks: prior.blocks && unpackUnits(prior.blocks),
    }),
    given: (one.given || []).map((own) => (
      { encoder: own.encoder.map(unpack), decoder: unpack(own.decoder), prior: unpack(own.prior) })),
    smoothing: smoothing && { ...smoothing, width: smoothing.width && unpack(smoothing.width) },
    check: {
      bits: unpackBits(check.bits, 1, units)[0],
      logits: unpack(check.logits),
      pixels: unpack(check.pixels),
      fields: unpack(check.fields),
      energy: check.energy,
    },
  };
}

// A number with so many decimals, a real minus sign, and no minus zero.
function fixed(value, digits) {
  return value.toFixed(digits).replace(/^-(0(\.0*)?)$/, "$1").replace("-", "−");
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
