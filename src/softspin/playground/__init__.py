"""Export of a trained model as one HTML page that runs it: draw, flip bits, sample, see couplings and soft bits."""
