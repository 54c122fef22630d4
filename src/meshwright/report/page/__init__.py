"""Answers as pages: plain values of what is said and drawn (``blocks``), and the one file that a browser opens (``html``)."""
