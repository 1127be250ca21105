"""Optional faster drop-in networks. A run records whether it used one."""
