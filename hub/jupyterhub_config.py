"""The JupyterHub of `make hub` (python -m tools.hub): one machine, one class, no system users.

Every value that changes from start to start is in `here`. For a hub that stays, see README.md beside this file.
"""

import os
import sys
from pathlib import Path

from jupyterhub.services.service import Service

from tools.course import ROOT, manifest
from tools.hub.passwords import ClassPassword
from tools.hub.publish import pull_path
from tools.hub.settings import ADMIN, BOARD, REPORT, Settings
from tools.hub.spawner import SandboxedSpawner

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
c.JupyterHub.default_url = pull_path(here.state)  # who opens the bare address gets the course, too
c.JupyterHub.upgrade_db = True

# --- who may come in -------------------------------------------------------------------------------------------------
# One password for the class, a longer one for the instructor. Anyone who knows the first can take any student's name:
# for a term, choose an authenticator that knows people (README.md).
c.JupyterHub.authenticator_class = ClassPassword
c.ClassPassword.user_password = here.password
c.ClassPassword.admin_password = here.admin_password
c.Authenticator.admin_users = {ADMIN}
c.Authenticator.allow_all = True
c.Authenticator.username_pattern = r"[a-z][a-z0-9_-]{0,31}\Z"  # a name becomes a folder
c.JupyterHub.template_vars = {
    "announcement_login": f"{manifest()['title']}: choose a name of lowercase letters and digits, such as carol2, and "
    "use it every time, with the password of your class."
}

# --- a student's server ----------------------------------------------------------------------------------------------
python = Path(sys.executable)
# Of PyTorch for one student: an eighth of the cores, as a class rarely computes all at once; 1 to 4. Threads of several
# students on one core wait for one another, so more of them make all of them slower.
threads = min(4, max(1, (os.cpu_count() or 1) // 8))

c.JupyterHub.spawner_class = SandboxedSpawner
c.SimpleLocalProcessSpawner.home_dir_template = str(here.state / "home" / "{username}")
c.Spawner.default_url = "/lab"
c.Spawner.start_timeout = 120
c.Spawner.http_timeout = 120
c.Spawner.env_keep = ["LANG", "LC_ALL", "LD_LIBRARY_PATH"]
c.Spawner.environment = {
    "PATH": os.pathsep.join([str(python.parent), "/usr/local/bin", "/usr/bin", "/bin"]),
    "JUPYTER_CONFIG_PATH": str(ROOT / "hub" / "jupyter"),
    "TORCHCOURSE_DATA": str(here.data),
    "OMP_NUM_THREADS": str(threads),
}
# Shown to students' servers as MEM_LIMIT and CPU_LIMIT; what holds is in tools/hub/sandbox.py.
c.Spawner.mem_limit = f"{here.memory_gib}G"
c.Spawner.cpu_limit = float(threads)

# --- the board of the class, a service of the hub (tools/hub/board.py) -----------------------------------------------
if here.board_port:
    c.JupyterHub.custom_scopes = {REPORT: {"description": "Report to the board of the class."}}
    c.JupyterHub.load_groups = {"instructors": {"users": []}}
    c.JupyterHub.load_roles = [
        {"name": "user", "scopes": ["self", REPORT]},
        {"name": "instructors", "groups": ["instructors"], "scopes": [f"access:services!service={BOARD}"]},
    ]
    c.JupyterHub.services = [
        {
            "name": BOARD,
            "url": f"http://127.0.0.1:{here.board_port}",
            "command": ["setpriv", "--pdeathsig", "KILL", "--", str(python), "-m", "tools.hub.board"],
            "cwd": str(ROOT),
            "environment": {"OMP_NUM_THREADS": "1"},
            "oauth_no_confirm": True,
            # It loads PyTorch before it answers. JupyterHub 6 waits 30 seconds by default, and then stops for good.
            **({"timeout": 300} if hasattr(Service, "timeout") else {}),
        }
    ]
    c.Spawner.environment["TORCHCOURSE_BOARD"] = f"http://127.0.0.1:{here.board_port}/services/{BOARD}/report"
    # A server's token may do what it always may, and report; but the instructor's own notebooks don't count.
    server = ["users:activity!user", "access:servers!server"]
    c.Spawner.server_token_scopes = lambda spawner: server if spawner.user.admin else [*server, REPORT]
