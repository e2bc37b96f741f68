"""Labels by people: a random sample of rows, labelled blind on one page of this machine, and kept in one file.

rows → sample → session ⇄ page, and each label → label file
"""
