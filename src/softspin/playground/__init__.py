"""A trained model as one HTML page that runs it: draw, flip bits, sample, look inside."""
