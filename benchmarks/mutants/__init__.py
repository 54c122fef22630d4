"""What the tests do not see: one line of a formula is changed, and the tests of its room must fail.

    sites.py    every place in a source where a plausible slip fits in one line: factor, sign, index, comparison, condition, extreme
    rooms.yaml  which tests see which room
    known.yaml  slips that survived once, by what stands in the line
    forked.py   one mutant in a fork of this process: a few seconds
    seeing.py   which tests execute a line (contexts.py: the plugin of pytest that sees it), for what its room does not notice
    trying.py   one mutant in a copy of the tree, never in the tree
    page.py     docs/mutants.md
"""
