"""The JupyterHub of `make hub` (python -m tools.hub): one machine, one class, no system users.

Every value that changes from start to start is in `here`. For a hub that stays, see README.md beside this file.
"""

import os
import sys
from pathlib import Path

from tools.course import ROOT, manifest
from tools.hub import board, sandbox
from tools.hub.login import ClassPassword
from tools.hub.settings import Settings
from tools.hub.spawner import WalledSpawner

c = get_config()  # noqa: F821 (JupyterHub provides it)
here = Settings.from_environment()

# --- where everything listens and what it keeps ----------------------------------------------------------------------
c.JupyterHub.bind_url = f"http://{here.ip}:{here.port}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{here.hub_port}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{here.proxy_port}"
c.ConfigurableHTTPProxy.command = [str(here.proxy)]
c.ConfigurableHTTPProxy.pid_file = str(here.state / "proxy.pid")
c.JupyterHub.cookie_secret_file = str(here.state / "cookie_secret")
c.JupyterHub.db_url = f"sqlite:///{here.state / 'jupyterhub.sqlite'}"
c.JupyterHub.cleanup_servers = True  # when the hub stops, every student's server stops
c.JupyterHub.default_url = here.start_path  # who opens the bare address gets the course, too
c.JupyterHub.upgrade_db = True

# --- who may come in -------------------------------------------------------------------------------------------------
# One password for the class, a longer one for the instructor. Anyone who knows the first can take any student's name:
# for a term, choose an authenticator that knows people (README.md).
c.JupyterHub.authenticator_class = ClassPassword
c.ClassPassword.user_password = here.password
c.ClassPassword.admin_password = here.admin_password
c.Authenticator.admin_users = {here.admin}
c.Authenticator.allow_all = True
c.Authenticator.username_pattern = r"[a-z][a-z0-9_-]{0,31}\Z"  # a name becomes a folder
c.JupyterHub.template_vars = {
    "announcement_login": f"{manifest()['title']}: choose a name of lowercase letters and digits, such as carol2, and "
    "use it every time, with the password of your class."
}

# --- a student's server ----------------------------------------------------------------------------------------------
python = Path(sys.executable)

c.JupyterHub.spawner_class = WalledSpawner if here.sandboxed else "simple"
c.SimpleLocalProcessSpawner.home_dir_template = str(here.state / "home" / "{username}")
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120
c.Spawner.env_keep = ["LANG", "LC_ALL", "LD_LIBRARY_PATH"]
c.Spawner.environment = {
    "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
    "JUPYTER_CONFIG_PATH": str(ROOT / "hub" / "jupyter"),
    "TORCHCOURSE_DATA": str(here.data),
    "OMP_NUM_THREADS": str(here.threads),
}
if here.board_port:
    board.register(c, here.board_port)
# Shown to students' servers as MEM_LIMIT and CPU_LIMIT; what holds is in tools/hub/sandbox.py.
c.Spawner.mem_limit = f"{here.memory_gib}G" if here.memory_gib else None
c.Spawner.cpu_limit = float(here.threads)

if not here.sandboxed:  # for a demonstration; the hub says so when it starts
    memory = sandbox.Memory(None, int(here.memory_gib * 2**30) or None, 0, 0)
    c.Spawner.cmd = [*sandbox.limits(memory), str(python), "-m", "jupyterhub.singleuser"]
    c.Spawner.pre_spawn_hook = lambda spawner: Path(spawner.home_dir).mkdir(mode=0o700, parents=True, exist_ok=True)
