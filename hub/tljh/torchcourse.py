"""The course on The Littlest JupyterHub: copy this file to /opt/tljh/config/jupyterhub_config.d/ (README.md, one up).

It is read after TLJH's own settings, which `tljh-config` writes: memory, CPU and idle time are set there.
"""

from urllib.parse import urlencode

c = get_config()  # noqa: F821 (JupyterHub provides it)

# What the commands of README.md have put in place: the course's repository, the data sets, settings of Jupyter.
REPOSITORY = "/srv/hub/torchcourse.git"
DATA = "/srv/data/torchcourse"
JUPYTER = "/srv/hub/jupyter"

# Who opens the bare address of the hub gets their own copy of the course, or its update. The same link opens one lab
# with labs/01_tensors.ipynb in place of README.md.
link = {
    "repo": f"file://{REPOSITORY}",
    "branch": "main",
    "targetPath": "torchcourse",
    "urlpath": "lab/tree/torchcourse/README.md",
}
c.JupyterHub.default_url = f"/hub/user-redirect/git-pull?{urlencode(link)}"

c.Spawner.default_url = "/lab"
c.Spawner.environment.update(
    {
        "TORCHCOURSE_DATA": DATA,
        "JUPYTER_CONFIG_PATH": JUPYTER,
        "OMP_NUM_THREADS": "2",  # as many as limits.cpu: more threads than cores wait for one another
    }
)

# Each student is a system user with a home of their own, and systemd holds their limits.
c.SystemdSpawner.isolate_tmp = True
c.SystemdSpawner.readonly_paths = [DATA, REPOSITORY]
c.SystemdSpawner.unit_extra_properties = {"TasksMax": "512"}
