"""The protocol between a client and a broker, without sockets and clocks. See docs/protocol.md."""
