"""Tests of generating models on whole platforms."""
