"""A topic between processes: a sender publishes and retains messages, and receivers join at any time.

messages.py   wire.py          the messages of the protocol, and their bytes
retention.py  outbox.py        what a sender retains, and what waits for each receiver
sending.py                     the rules of a sender
asks.py       ordering.py      one session as received: in order, each message once, or reported lost
place.py      receiving.py     the receiver: finding a sender, and one session after the other
catching_up.py                 how long it takes to catch up
sender.py     receiver.py      both over TCP
loop_thread.py                 their connections, in a thread of one process
"""

from persistent.topic.catching_up import CatchUp
from persistent.topic.messages import MessagesLost, SessionBegan, SessionEnded, TopicMessage
from persistent.topic.options import JoinOptions, Retain
from persistent.topic.place import TopicPlace
from persistent.topic.receiver import TopicReceiver
from persistent.topic.sender import TopicSender

__all__ = [
    "CatchUp",
    "JoinOptions",
    "MessagesLost",
    "Retain",
    "SessionBegan",
    "SessionEnded",
    "TopicMessage",
    "TopicPlace",
    "TopicReceiver",
    "TopicSender",
]
