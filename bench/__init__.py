"""Side by side with peers: how fast Virta is, measured on the machine you are on."""
