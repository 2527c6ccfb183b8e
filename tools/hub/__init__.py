"""`make hub`: a real JupyterHub for a class, on this machine.

publish.py     the students' tree becomes a git repository, and a link that pulls it
sandbox.py     the sandbox of a student's server, made with bubblewrap
spawner.py     starts a server in its sandbox; sandbox_start.py is its first program there
passwords.py      the password
board.py       the board of the class, a service of the hub; board.html is its page
settings.py    what the command line hands to hub/jupyterhub_config.py, which holds every setting
__main__.py    the command line

hub/README.md says who should use this, and what to use instead.
"""
