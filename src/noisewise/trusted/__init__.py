"""What must be believed: everything between the private records and the answers that leave.

It imports nothing of noisewise outside itself. ``noisewise verify RUN --reading-list`` prints the files that a run's promise rests
on, in three rings: always read (``events``, ``meter``, ``question``, ``gate``, ``facts``), read what your statement names, and
compiled twins (``fast/``), which tests compare bit for bit with their references.
"""
