"""Running a broker: settings, logs, metrics, health, certificates, start and stop."""
