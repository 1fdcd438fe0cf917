"""What is known of a model: its quality, audits, attacks, theory, its report, and its run folder."""
