"""A storage is a folder of named bytes that survive. Only this package and the listing of a source's files know fsspec,
its clients, and the disk.

protocol.py                its six verbs; opening.py: the storage behind a URL
local.py  memory.py        a folder of a local disk; of this process
s3.py  hdfs.py  generic.py    behind a network, all by fsspec_storage.py; clients.py: their clients
failures.py                what a failure means, and when a request is repeated
doctor.py  racer.py        whether a store lets one of many win
places.py  short_names.py  how users name a place, and how it is shown

A change survives a loss of power once its verb has returned: files are synced before their names, names before the
answer. No verb overwrites a file; only ``write`` behind a network relies on its name being new. HDFS answers when the
data is in the memory of its DataNodes.

Requests of each verb without failures (S3: requests; HDFS: calls of the NameNode, and one block to the DataNodes):

| | put_if_absent | write | read | list | rename | delete |
|---|---|---|---|---|---|---|
| S3 | 1 | 1 (parts above 256 MB) | 1 | 1 a thousand names | 3 | 1 |
| HDFS | 4 | 3 | 1 | 1 a thousand names | 1 | 1 |
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.storage.fsspec_storage import FsspecStorage
    from persistent.storage.local import LocalStorage
    from persistent.storage.memory import MemoryStorage
    from persistent.storage.opening import is_proved, open_storage
    from persistent.storage.protocol import Put, Storage, delete_all, put_once, put_or_read
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.storage.fsspec_storage": "FsspecStorage",
            "persistent.storage.local": "LocalStorage",
            "persistent.storage.memory": "MemoryStorage",
            "persistent.storage.opening": "is_proved open_storage",
            "persistent.storage.protocol": "Put Storage delete_all put_once put_or_read",
        },
    )

__all__ = [
    "FsspecStorage",
    "LocalStorage",
    "MemoryStorage",
    "Put",
    "Storage",
    "delete_all",
    "is_proved",
    "open_storage",
    "put_once",
    "put_or_read",
]
