"""The course on a hub whose servers are Slurm jobs: add this to your jupyterhub_config.py (README.md, one up).

BatchSpawner's own page says what it needs beside this: https://github.com/jupyterhub/batchspawner. Lines marked CHANGE
are yours to fill in.
"""

from urllib.parse import urlencode

import batchspawner  # noqa: F401 (its import lets a server tell the hub its port)

c = get_config()  # noqa: F821 (JupyterHub provides it)

# What the commands of README.md have put on a disk that every node sees.
COURSE = "/project/torchcourse"  # CHANGE

# Who opens the bare address of the hub gets their own copy of the course, or its update.
link = {
    "repo": f"file://{COURSE}/hub/torchcourse.git",
    "branch": "main",
    "targetPath": "torchcourse",
    "urlpath": "lab/tree/torchcourse/README.md",
}
c.JupyterHub.default_url = f"/hub/user-redirect/git-pull?{urlencode(link)}"

c.JupyterHub.spawner_class = "batchspawner.SlurmSpawner"
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = 120  # PyTorch's environment is large, and a network disk may be slow
c.Spawner.environment.update(
    {
        "TORCHCOURSE_DATA": f"{COURSE}/data",
        "JUPYTER_CONFIG_PATH": f"{COURSE}/jupyter",
        "GIT_CONFIG_SYSTEM": f"{COURSE}/gitconfig",  # lets git read a repository that another user owns
        "OMP_NUM_THREADS": "2",  # as many as req_nprocs
    }
)

# The job of a student. With GPUs, add c.SlurmSpawner.req_gres = "gpu:1".
c.SlurmSpawner.req_partition = "cpu"  # CHANGE
c.SlurmSpawner.req_runtime = "4:00:00"
c.SlurmSpawner.req_nprocs = "2"
c.SlurmSpawner.req_memory = "4G"
c.SlurmSpawner.req_prologue = f"source {COURSE}/venv/bin/activate"
c.SlurmSpawner.req_srun = "srun --export=ALL"  # or the server would start without what the prologue has set
