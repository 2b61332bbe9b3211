"""A trained model to give away: one file, or a folder with a card; by hand or over the Hugging Face Hub."""
