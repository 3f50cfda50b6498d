"""A topic between processes: a sender publishes and retains messages, and receivers join at any time."""

from persistent.messaging.topic.messages import MessagesLost, SessionBegan, SessionEnded, TopicMessage, TopicPlace
from persistent.messaging.topic.options import JoinOptions, Retain
from persistent.messaging.topic.receiver import TopicReceiver
from persistent.messaging.topic.receiving import CatchUp
from persistent.messaging.topic.sender import TopicSender

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
