"""What authors and CI run. No notebook imports it."""
