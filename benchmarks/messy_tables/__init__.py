"""Audits of tables as people have them."""
