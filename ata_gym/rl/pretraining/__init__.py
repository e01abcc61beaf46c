"""How the learned policies of the zoo are trained: on workers drawn at random, before any of them is met.

It needs the extra ``train``.
"""
