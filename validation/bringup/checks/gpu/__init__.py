"""GPUs: present, healthy, bound to tasks, isolated, and fast enough."""
