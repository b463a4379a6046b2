"""The asyncio twin of the embedded log: the same names, awaited. See `log`."""

from virta.aio.changes import AsyncChanges as AsyncChanges
from virta.aio.groups import AsyncAttempt as AsyncAttempt
from virta.aio.groups import AsyncDeadLetters as AsyncDeadLetters
from virta.aio.groups import AsyncGroup as AsyncGroup
from virta.aio.groups import AsyncGroupReader as AsyncGroupReader
from virta.aio.log import AsyncLog as AsyncLog
from virta.aio.partition import AsyncPartition as AsyncPartition
from virta.aio.reading import AsyncReading as AsyncReading
from virta.aio.result import AsyncResult as AsyncResult
from virta.aio.selection import AsyncSelection as AsyncSelection
from virta.aio.table import AsyncTable as AsyncTable
from virta.aio.topic import AsyncTopic as AsyncTopic
from virta.aio.worker import Opening as Opening
from virta.aio.writer import AsyncWriter as AsyncWriter
