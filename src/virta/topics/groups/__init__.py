"""Consumer groups: several readers share a topic's partitions and remember how far they came.

`state` decides (pure: no clock, no file), `store` keeps it, `coordinator` joins the two with
the committed positions in `__offsets`, `reader` is what users hold. Embedded, every process
runs the coordinator under a lock in the directory; a broker runs the same one for its clients.
"""

from virta.topics.groups.coordinator import Coordinator as Coordinator
from virta.topics.groups.coordinator import GroupCoordinator as GroupCoordinator
from virta.topics.groups.model import Assignment as Assignment
from virta.topics.groups.model import Commit as Commit
from virta.topics.groups.model import GroupDescription as GroupDescription
from virta.topics.groups.model import GroupKey as GroupKey
from virta.topics.groups.model import Heartbeat as Heartbeat
from virta.topics.groups.model import Lag as Lag
from virta.topics.groups.model import MemberDescription as MemberDescription
from virta.topics.groups.model import PartitionStanding as PartitionStanding
from virta.topics.groups.model import ResetPlan as ResetPlan
from virta.topics.groups.store import DirectoryStore as DirectoryStore
from virta.topics.groups.store import GroupStore as GroupStore
from virta.topics.groups.store import MemoryStore as MemoryStore
