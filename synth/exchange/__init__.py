"""Schedules in the forms that other tools write and read."""
