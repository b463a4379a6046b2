"""What the bytes of a value are: recognised by their form, and read as far as that goes without a schema.

    JSON          an object or an array                    read whole
    MessagePack   one value that fills the bytes exactly    read whole
    Avro          a container file holds its schema         read whole
                  a single object or a registry's frame     named, not read: the schema is elsewhere
    Protobuf      fields by number and wire type            read; names and exact types are not in the bytes

Nothing here is certain for bytes that were not written to be recognised, so each finding says what
it rests on.
"""

from virta.console.payloads.recognise import recognise

__all__ = ["recognise"]
