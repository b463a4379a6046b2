"""Who somebody is and what they may do: decisions only; whoever asked for one acts on it."""
