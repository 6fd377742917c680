"""Conversations that answer back."""
