"""Tables, figures and pages, drawn from stored rows and arrays, never from a live model."""
