"""The `torchcourse` command, and the doctor that looks whether a machine is ready for the course."""
