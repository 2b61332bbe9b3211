// The start.

startFacts();
startReplicas();
startConditions();
startTabs();
startStrip();
startDrawing();
startBits();
startPrior();
startCouplings();
fillCouplings();
startDensity();
showFacts();
mark($("strip").firstChild);
setImage(images[0]);
window.addEventListener("resize", changed);

// For tests, and for the console.
window.softspin = {
  get model() { return model; },
  state, images, families: Object.keys(FAMILIES), boltzmann, encode, decode, effects, fields, energy, sweep, uniforms,
  logDensities, mixtureDensity, largestDifference, fixed,
};
