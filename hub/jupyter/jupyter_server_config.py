"""Settings of a student's Jupyter server, the same on every hub (copied or named by JUPYTER_CONFIG_PATH)."""

c = get_config()  # noqa: F821 (Jupyter provides it)

# A kernel keeps a model and its data in memory. One that nobody has looked at for two hours is stopped, and a server
# without kernels and visitors two hours later; the notebooks are on disk.
c.MappingKernelManager.cull_idle_timeout = 2 * 3600
c.MappingKernelManager.cull_interval = 300
c.ServerApp.shutdown_no_activity_timeout = 2 * 3600

# Tools of the instructor, where they are installed in the same environment.
c.ServerApp.jpserver_extensions = {
    "nbgrader.server_extensions.assignment_list": False,
    "nbgrader.server_extensions.course_list": False,
    "nbgrader.server_extensions.formgrader": False,
    "nbgrader.server_extensions.validate_assignment": False,
}
