"""Probes of the CPU, memory and GPU that processes use."""
