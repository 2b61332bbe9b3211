"""Sharing of trained models: one file, or a folder with a model card, also on the Hugging Face Hub.

The public functions are :meth:`softspin.Model.save`, :meth:`softspin.Model.push_to_hub`,
:meth:`softspin.Model.from_pretrained` and :func:`softspin.load`.
"""
