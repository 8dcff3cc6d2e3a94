"""Connections between the processes under test, through proxies that injure them."""
