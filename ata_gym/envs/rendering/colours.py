"""The colours of every picture of the project."""

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#B8A800")
"""Eight colours that the colour-blind tell apart (Okabe and Ito, 2008).

The yellow is darkened for white paper.
"""
