// r(zeta|z): one relaxed bit, for each family. A component is a function of the distance to its mode;
// r(zeta|1) is the mirror image of r(zeta|0).

const HALF_LOG_TAU = 0.5 * Math.log(2 * Math.PI);

function logExponential(distance, { beta }) {
  return -beta * distance + Math.log(beta) - Math.log(-Math.expm1(-beta));
}

function logGaussian(distance, { beta }) {
  return -0.5 * beta * distance ** 2 + 0.5 * Math.log(beta) - HALF_LOG_TAU;
}

const FAMILIES = {
  exp: {
    title: "exponential",
    formula: "r(ζ|0) = β e^(−βζ) / (1 − e^(−β))",
    lowest: 0,
    log: logExponential,
  },
  un_exp: {
    title: "uniform + exponential",
    formula: "r(ζ|0) = (1 − ε) β e^(−βζ) / (1 − e^(−β)) + ε",
    lowest: 0,
    log: (distance, given) =>
      Math.log((1 - given.epsilon) * Math.exp(logExponential(distance, given)) + given.epsilon),
  },
  power: {
    title: "power function",
    formula: "r(ζ|0) = ζ^(1/β − 1) / β",
    lowest: 1,
    log: (distance, { beta, clamp = 0 }) => (1 / beta - 1) * Math.log(distance + clamp) - Math.log(beta),
  },
  gaussian: {
    title: "Gaussian",
    formula: "r(ζ|z) = N(ζ; z, 1/β)",
    lowest: 0,
    line: true,
    log: logGaussian,
  },
  shifted_gaussian: {
    title: "shifted Gaussian",
    formula: "r(ζ|z) = N(ζ; z + shift, 1/β), shift from the encoder, β = 1/width² of each bit",
    lowest: 0,
    line: true,
    log: logGaussian,
  },
  spike_exp: {
    title: "spike and exponential",
    formula: "r(ζ|0) = point mass at 0, r(ζ|1) = β e^(−β(1−ζ)) / (1 − e^(−β))",
    lowest: 0,
    spike: true,
    log: logExponential,
  },
};

// [log r(zeta|0), log r(zeta|1)]. The densities of a spike are with respect to a point mass at 0 plus length on (0, 1].
function logDensities(given, zeta) {
  const family = FAMILIES[given.family];
  if (family.spike) return zeta > 0 ? [-Infinity, family.log(1 - zeta, given)] : [0, -Infinity];
  const centred = given.family === "shifted_gaussian" ? zeta - (given.shift || 0) : zeta;
  return [family.log(centred, given), family.log(1 - centred, given)];
}

// (1 - q) r(zeta|0) + q r(zeta|1): the distribution of the encoder's soft bit.
function mixtureDensity(given, q, zeta) {
  const [log0, log1] = logDensities(given, zeta);
  return (1 - q) * Math.exp(log0) + q * Math.exp(log1);
}
