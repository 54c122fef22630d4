"""Logs of training runs: one small file for each framework's way of printing a step, over what they share.

``draft`` collects what lines say until it is a ``RunLog``, ``dialect`` searches a file for a framework's lines, ``parts`` says what
a timer's name means.
"""
