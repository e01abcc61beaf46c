"""The colours of every picture of the project."""

OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
"""Eight colours that colour-blind readers tell apart, on white paper.

They are the colours of Okabe and Ito (2008), with the wine of Paul Tol's muted scheme (2021) in
place of their yellow: that is too light for lines on white, and a darker yellow looks like their
orange.
"""
